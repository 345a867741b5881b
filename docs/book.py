"""Preprocessor of mdBook. It adds the pages of the repository's root to the book, and adapts links.

The plain files link each other by paths in the repository. In the book, `docs` is the root: the pages of the repository's
root become chapters next to it, and links to files that are no chapters become text.
"""

import json
import posixpath
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The file, the name of its chapter, and the page in whose section it appears.
PAGES = [
    ("COMPAT.md", "Differences from CouchDB", "reference.md"),
    ("CHANGELOG.md", "Changes", "reference.md"),
    ("ARCHITECTURE.md", "Architecture", "internals/README.md"),
    ("CONTRIBUTING.md", "Contributing", "internals/README.md"),
]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def chapters(items):
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def adapted(text, page, known):
    """The text of a page, given by its path in the repository, with links that are valid in the book."""

    def link(match):
        image, label, path, anchor = match.groups()
        if not path or re.match(r"[a-z]+:", path):
            return match.group(0)
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        inside = target.removeprefix("docs/")
        if image or inside in known:
            here = posixpath.dirname(page.removeprefix("docs/")) or "."
            return f"{image}[{label}]({posixpath.relpath(inside, here)}{anchor or ''})"
        return label

    blocks = re.split(r"(^```.*?^```$)", text, flags=re.S | re.M)
    return "".join(block if block.startswith("```") else LINK.sub(link, block) for block in blocks)


def main():
    _, book = json.load(sys.stdin)
    items = book["items"] if "items" in book else book["sections"]
    known = {chapter["path"]: chapter for chapter in chapters(items) if chapter["path"]}
    for name, title, parent in PAGES:
        above = known[parent]
        number = [*(above["number"] or []), len(above["sub_items"]) + 1]
        chapter = {
            "name": title,
            "content": (ROOT / name).read_text(encoding="utf-8"),
            "number": number,
            "sub_items": [],
            "path": name,
            "source_path": name,
            "parent_names": [*above["parent_names"], above["name"]],
        }
        above["sub_items"].append({"Chapter": chapter})
        known[name] = chapter
    roots = {name for name, _, _ in PAGES}
    for chapter in known.values():
        page = chapter["path"]
        chapter["content"] = adapted(chapter["content"], page if page in roots else f"docs/{page}", known)
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["supports"]:
        sys.exit(0)
    main()

//! Functions with and without a proof. `tests/it/projection.rs` checks proofs with an interpreter.

use settee_model::testing::Random;

use super::members;

fn of(source: &str) -> Option<String> {
    members(source).map(|names| names.into_iter().collect::<Vec<_>>().join(" "))
}

#[track_caller]
fn sees(body: &str, expected: &str) {
    assert_eq!(of(&format!("def f(doc):\n  {body}\n")).as_deref(), Some(expected), "{body}");
}

#[track_caller]
fn whole(body: &str) {
    assert_eq!(of(&format!("def f(doc):\n  {body}\n")), None, "{body}");
}

#[test]
fn the_source_is_one_function_of_one_argument() {
    for source in [
        "def f(doc): yield doc['a'], 1",
        "\n  \n# of scores\n   # more\ndef f(doc):\n\tyield doc['a'], 1\n# end\n\t\n",
        "def f (\n doc ) :\r\n    yield (\r\ndoc['a'], # (\r\n1)\r\n",
        "# -*- coding: utf-8 -*-\ndef doc(doc):\n  'A score, é.'\n\n  yield doc['a'], 'ü'  # ö\n",
        "def f(doc):\n  x = \\\n doc['a']\n  yield x, 1",
        "def f(doc):\n  x = '''\ndef g(doc): doc\n'''\n  yield doc['a'], x",
        "def f(_): yield _['a'], 1",
    ] {
        assert_eq!(of(source).as_deref(), Some("a"), "{source}");
    }
    for source in [
        "",
        "f",
        "lambda doc: [(doc['a'], 1)]",
        " def f(doc): yield doc['a'], 1",
        "def f(doc, x): yield doc['a'], 1",
        "def f(): yield 1, 1",
        "def f(doc,): yield doc['a'], 1",
        "def f(doc=1): yield doc['a'], 1",
        "def f(*doc): yield doc['a'], 1",
        "def f((doc)): yield doc['a'], 1",
        "def f(doc: dict): yield doc['a'], 1",
        "def f(doc) -> x: yield doc['a'], 1",
        "def f[T](doc): yield doc['a'], 1",
        "async def f(doc): yield doc['a'], 1",
        "@g\ndef f(doc): yield doc['a'], 1",
        "'text'\ndef f(doc): yield doc['a'], 1",
        "import re\ndef f(doc): yield doc['a'], 1",
        "def f(doc): yield doc['a'], 1\nf = log",
        "def f(doc): yield doc['a'], 1\n;",
        "def f(doc):\n  yield doc['a'], 1\ndef f(doc): yield 1, doc",
        "class f(doc): yield doc['a'], 1",
        "def __f(doc): yield doc['a'], 1",
        "def f(__doc): yield __doc['a'], 1",
        "def f(doc): yield doc['a'], 1)",
        "def f(doc): yield (doc['a'], 1",
        "def f(doc): yield [doc['a'], (1])",
        "def f(doc):\n  \\\n  yield doc['a'], 1",
        "def f(doc):\n  \\\nyield doc['a'], 1",
        "\u{feff}def f(doc): yield doc['a'], 1",
        "# coding: latin-1\ndef f(doc): yield doc['a'], 1",
        "# coding coding=utf-7\ndef f(doc): yield doc['a'], 1",
        "# coding: utf-8é\ndef f(doc): yield doc['a'], 1",
        "def f(doc):\n\x0c  yield doc['a'], 1",
        "def f(doc):\n  yield doc['a'], 1\n\x0cg = f",
        "def f(doc):\n  # a\r  yield doc, 1\n  yield doc['a'], 1",
        "def f(doc): yield doc['a'], 1\0",
    ] {
        assert_eq!(of(source), None, "{source:?}");
    }
}

#[test]
fn forms_that_name_a_member() {
    for (body, expected) in [
        ("yield 1, 2", ""),
        ("pass", ""),
        ("yield doc['b'], doc [ \"a\" ]", "a b"),
        ("yield doc[u'a'], doc[U'b']", "a b"),
        ("yield doc['''a'''], doc['']", " a"),
        ("yield doc['a']['b'].get(doc['c']['doc']), doc.get('d').get(\"e\")", "a c d"),
        ("yield doc.get('a'), doc . get (\n'b' , [])", "a b"),
        ("if doc.has_key('a'): yield 1, 2", "a"),
        ("if 'a' in doc: yield 1, 2", "a"),
        ("if 'a'in doc and not'b'in doc or 'c' not in doc: yield 1, 2", "a b c"),
        ("if ('a' in doc\n and 'b' in doc): yield 1, 2", "a b"),
        ("x = 'a' in doc; y = 'b' in doc", "a b"),
        ("'a' in doc\n  'b' not in doc", "a b"),
        ("return [(1, 'a' in doc)]", "a"),
        ("yield {'a' in doc: 'b' in doc}, ['c' in doc for x in (1, 2) if 'd' in doc]", "a b c d"),
        ("x = 1 if 'a' in doc else 'b' in doc if 'c' in doc else lambda: 'd' in doc", "a b c d"),
        ("while x > 1 and 'a' in doc: yield", "a"),
        ("if 'a' in doc['b'] and 'c' in doc.get('d'): yield", "b d"),
        ("doc['a'] = doc['b'] += 1", "a b"),
        ("del doc['a'], doc['b']", "a b"),
        ("for doc['a'] in range(3): yield doc['b'] , 1", "a b"),
        ("yield x.doc, self.doc(doc['a'])", "a"),
        ("yield [key for key in doc['a'] if key], {x: y for x, y in doc['b']}", "a b"),
        (
            "def g(x): return x + doc['a']\n  class A(object): y = doc['b']\n  yield g(lambda z: doc['c'] + z), 1",
            "a b c",
        ),
        ("print doc['a'], 'doc', b'doc', r'\\doc', 'do''c'", "a"),
        ("yield doc['a'] if x else doc['b'], *doc['c']", "a b c"),
        ("yield doc['eval'], doc['__a'], doc.get('sys')", "__a eval sys"),
        ("yield (y := doc['a']), 1", "a"),
        ("try: yield doc['a'], 1\n  except KeyError as error: log(str(error))", "a"),
    ] {
        sees(body, expected);
    }
}

#[test]
fn anything_else_is_the_whole_document() {
    for body in [
        "yield 1, doc",
        "return doc",
        "doc",
        "(doc)",
        "doc = 1",
        "doc += 1",
        "doc: int = 1",
        "(doc := 1)",
        "del doc",
        "global doc",
        "nonlocal doc",
        "import doc",
        "from re import doc",
        "import re as doc",
        "for doc in x: yield doc['a'], 1",
        "for x in doc: yield x, 1",
        "for x, y in doc.items(): yield x, y",
        "yield [x for x in doc], 1",
        "yield [doc for doc in doc['a']], 1",
        "yield len(doc), 1",
        "yield doc == x, 1",
        "yield x is doc, 1",
        "yield dict(doc), 1",
        "yield dict(**doc), [*doc]",
        "yield f(doc=1), 1",
        "yield doc['a'], str(doc)",
        "yield (lambda doc: doc['a'])(x), 1",
        "def g(doc): return doc['a']",
        "def g(x=doc): return x['a']",
        "class doc: pass",
        "class A(doc): pass",
        "with x as doc: pass",
        "try: pass\n  except KeyError as doc: pass",
        "match doc:\n    case {'a': x}: yield x, 1",
        "match doc['a']:\n    case {'a': x}: yield x, 1",
        "yield doc.get, 1",
        "yield doc.keys(), 1",
        "yield doc.pop('a'), 1",
        "yield doc.a['b'], 1",
        "doc.a = 1",
        "yield doc(x)['a'], 1",
        "yield doc[a], doc[0]",
        "yield doc['a', 'b'], 1",
        "yield doc['a':'b'], 1",
        "yield doc['a' 'b'], 1",
        "yield doc['a' + 'b'], 1",
        "yield doc['a'.upper()], 1",
        "yield doc['a' % x], 1",
        "yield doc['a' if x else 'b'], 1",
        "yield doc[('a')], 1",
        "yield doc[*'a'], 1",
        "yield doc[b'a'], 1",
        "yield doc[r'a'], 1",
        "yield doc[f'a'], 1",
        "yield doc['\\x61'], 1",
        "yield doc['é'], 1",
        "yield doc['''\na'''], 1",
        "yield doc[], 1",
        "doc\n  ['a']",
        "yield doc.get(), 1",
        "yield doc.get(x), 1",
        "yield doc.get('a' 'b'), 1",
        "yield doc.get('a' + 'b'), 1",
        "yield doc.get('a' for x in y), 1",
        "yield doc.get(*'a'), 1",
        "yield doc.get('a', doc), 1",
        "yield doc.get['a'], 1",
        "yield doc.has_key('a', 1), 1",
        "yield 'a' in doc == True, 1",
        "yield 'a' in doc in x, 1",
        "yield 'a' in doc is x, 1",
        "yield 'a' in doc | x, 1",
        "yield 'a' in doc.keys(), 1",
        "yield 'a' in doc(), 1",
        "yield x + 'a' in doc, 1",
        "yield -'a' in doc, 1",
        "yield '%s' % 'a' in doc, 1",
        "yield '%s' % x in doc, 1",
        "yield 'a' 'b' in doc, 1",
        "yield ('a' 'b' in doc), 1",
        "yield ('a'\n 'b' in doc), 1",
        "yield x in 'a' in doc, 1",
        "yield x == 'a' in doc, 1",
        "yield x in doc, 1",
        "yield ('a') in doc, 1",
        "yield await 'a' in doc, 1",
        "yield b'a' in doc, f'a' in doc",
        "print 'a' in doc",
        "'a' in doc async for x in y",
    ] {
        whole(body);
    }
}

#[test]
fn names_that_lead_to_the_document() {
    for body in [
        "yield locals(), 1",
        "yield eval('do' + 'c'), 1",
        "exec 'yield doc'",
        "yield vars(), dir()",
        "yield (lambda: doc['a']).__closure__, 1",
        "yield (lambda: doc['a']).func_closure, 1",
        "yield (x for x in doc['a']).gi_frame, 1",
        "yield getattr(g, 'gi_' + 'frame'), 1",
        "yield '{0.gi_frame.f_locals}'.format(g), 1",
        "yield '{0[a]}'.format(g), 1",
        "yield '{' '0.gi_frame}'.format(g), 1",
        "yield ('{0.gi' + '_frame}').format(g), 1",
        "yield '{:{0.gi_frame}}'.format(g), 1",
        "yield doc['a'].format(g), 1",
        "yield str.format(doc['a'], g), 1",
        "yield '{0.a}'.format_map(g), 1",
        "m = ''.format\n  yield m, 1\n  x = str . format",
        "match '':\n    case str(format=m): yield m(g), 1",
        "match g:\n    case object(gi_frame=x): yield x, 1",
        "import sys\n  yield sys.x, 1",
        "import re, inspect",
        "import re as r, gc",
        "import mine",
        "import re.mine, mine.re",
        "from mine import re",
        "from . import re",
        "from .re import x",
        "from re import *",
        "from re import _x",
        "from re import functools",
        "from re import compile",
        "from re import sys as s",
        "from\\\n mine import re",
        "import re as _r",
        "import collections\n  yield collections._sys, 1",
        "import json\n  json.loads = log",
        "import re\n  yield re.enum.sys, 1",
        "yield re.re.compile('a'), 1",
        "yield compile('a', 'b', 'c'), 1",
        "yield __import__('sys'), 1",
        "yield log.__globals__, 1",
        "yield input(), open('/proc/self/fd/0')",
        "try: doc.has_key('a')\n  except Exception as e: yield e.obj, 1",
        "yield `doc['a']`, 1",
        "yield d\u{ff4f}c, 1",
        "yield f'{doc}', 1",
        "yield f'{x} doc', 1",
        "yield f'{d\u{ff4f}c}', 1",
        "yield f'{locals()}', 1",
        "yield f'{x.__class__}', 1",
        "yield f'{x. _y}', 1",
        "yield f'{x.gi_frame}', 1",
        "yield f'{y.format(x)}', 1",
        "yield f'{x['a']}', 1",
        "yield f\"{x['a']}\", 1",
        "yield f\"{'}'+\"a\"}\", 1",
        "yield f'{x:{y}}', 1",
        "yield f'{x', 1",
        "yield f'{{x}}', 1",
        "yield f'\\{x}', 1",
        "yield t'{x}', 1",
        "yield doc['a'], 1if 2else 3",
        "yield doc['a'], 0xfor x",
        "yield doc['a'], 1.real",
        "yield doc['a'], 1__a",
        "yield doc['a'], x!y",
        "yield doc['a'], x ? y",
        "yield doc['a'], $",
        "yield doc['a'], \\ \n 1",
        "yield doc['a'], 'open",
        "yield doc['a'], '''open",
        "yield doc['a'], 'open\\",
        "yield doc['a'], '\n'",
    ] {
        whole(body);
    }
}

#[test]
fn unresolvable_paths() {
    for (body, expected) in [
        ("import re, datetime as d, urllib.parse\n  yield re.match('a', doc['a']), re.compile('b')", "a"),
        ("from datetime import datetime, timedelta as t; from re import (match,\nsub)\n  yield doc['a'], 1", "a"),
        ("if doc['a']: import time", "a"),
        ("from urllib.parse import urlparse\n  yield urlparse(doc['a']).netloc, 1", "a"),
        ("yield '{}-{:02d} {x!r:>8} {{}}'.format(doc['a'], x=2), 1", "a"),
        ("yield '%s %(x)s' % doc['a'], u'{0}'.format(1)", "a"),
        ("yield f'{x} {y.z:>4} {x!r} {x + y(1)}', F'plain'", ""),
        ("year, month, _ = doc['a'].split('-')\n  _x = 1", "a"),
        (
            "x = [0, 1.5, .5, 5., 1e5, 1E-5, 1.5e+3, 0xff, 0XFFl, 0o17, 0b1, 1_000, 7L, 2j, 017]\n  yield doc['a'][1:-1], 1",
            "a",
        ),
        ("yield doc['a'] ** 2 // 3 << 1 >> 1 <> 2 != 3, x[...], ~x ^ y | z & w @ v", "a"),
        ("obj = doc['a']\n  yield obj.obj, 1", "a"),
        ("if x.y == doc['a'] or x.y <= 1: yield", "a"),
    ] {
        sees(body, expected);
    }
    sees("yield doc['a'], 'eval(doc)', \"__class__ {doc.x}\", '''doc\n#'doc\" \\''''", "a");
}

#[test]
fn nonsense_is_taken() {
    let parts = [
        "def",
        "f",
        "doc",
        "(",
        ")",
        ":",
        "[",
        "]",
        "{",
        "}",
        "'a'",
        "\"b\"",
        "'",
        "\"",
        "'''",
        "\"\"\"",
        "f'{x}'",
        "f'{",
        "r'",
        "b'a'",
        "in",
        "not",
        "import",
        "from",
        "re",
        ".",
        ",",
        ";",
        "=",
        "==",
        "get",
        "format",
        "compile",
        "has_key",
        "\\",
        "\\\n",
        "\r\n",
        "\n",
        "\n  ",
        " ",
        "\t",
        "#",
        "# coding: x",
        "é",
        "\u{ff4f}",
        "0",
        "0x",
        "1e",
        "1e+",
        ".5",
        "_",
        "__",
        "!",
        "`",
        "\0",
        "\u{c}",
    ];
    let mut random = Random::new();
    for round in 0..40_000 {
        let mut source = if round % 2 == 0 { "def f(doc):".to_owned() } else { String::new() };
        for _ in 0..random.below(14) {
            source.push_str(random.pick(&parts));
        }
        let _ = members(&source);
        let bytes: Vec<u8> = (0..random.below(12)).map(|_| random.below(256_u32) as u8).collect();
        let _ = members(&String::from_utf8_lossy(&bytes));
    }
}

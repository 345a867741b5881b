// Writes han.bin, the table of src/collate/han.rs: node han.mjs > han.bin
//
// Needs a Node.js with the ICU whose order of Han characters is wanted, radical and stroke. The table in this
// directory comes from Node.js 22.13.0, which has ICU 76.1 (CLDR 46, Unicode 16).
//
// For each code point of RANGES, three bytes, little-endian: the character to give to the collation library in its
// place, or 0 to keep it. The library orders Han characters by libraryOrder(); the k-th character of ICU's order is
// exchanged for the k-th of the library's. Compatibility ideographs have a canonical decomposition into one unified
// ideograph and are exchanged like that one.

const RANGES = [[0x3400, 0x4dbf], [0x4e00, 0x9fff], [0xf900, 0xfaff], [0x20000, 0x323af]];

/** The twelve unified ideographs among the compatibility ideographs follow the first block, extensions follow both. */
function libraryOrder(character) {
  const code = character.codePointAt(0);
  const block = (code >= 0x4e00 && code <= 0x9fff) ? 0 : (code >= 0xf900 && code <= 0xfaff) ? 1 : 2;
  return block * 0x200000 + code;
}

const characters = [];
for (const [first, last] of RANGES) {
  for (let code = first; code <= last; code++) characters.push(String.fromCodePoint(code));
}
const unified = characters.filter((character) => /^\p{Unified_Ideograph}$/u.test(character));
const root = new Intl.Collator("und");
const wanted = [...unified].sort(root.compare);
const available = [...unified].sort((a, b) => libraryOrder(a) - libraryOrder(b));
const exchanged = new Map(wanted.map((character, rank) => [character, available[rank].codePointAt(0)]));

const table = Buffer.alloc(3 * characters.length);
characters.forEach((character, index) => {
  const code = exchanged.get(character) ?? exchanged.get(character.normalize("NFD"));
  table.writeUIntLE(code ?? 0, 3 * index, 3);
});
process.stderr.write(`ICU ${process.versions.icu}, ${unified.length} ideographs\n`);
process.stdout.write(table);

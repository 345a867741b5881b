// Scores by month, with the same functions as the example in Rust. Compile with
//   npx asc scores.ts --runtime stub --optimize --outFile scores.wasm

@external("settee", "emit")
declare function host_emit(key: usize, keyLen: i32, value: usize, valueLen: i32): void;
@external("settee", "result")
declare function host_result(text: usize, len: i32): void;

let input: usize = 0;

export function settee_alloc(size: i32): usize {
  // The runtime "stub" never frees memory.
  input = heap.alloc(size);
  return input;
}

/** Returns the offset of the first `text` in the input at or after `from`, or -1. */
function find(at: usize, len: i32, from: i32, text: string): i32 {
  for (let start = from; start <= len - text.length; start++) {
    let same = 0;
    while (same < text.length && load<u8>(at + start + same) == <u8>text.charCodeAt(same)) same++;
    if (same == text.length) return start;
  }
  return -1;
}

const key = heap.alloc(16);

/** Emits `[year, month]` and the score. */
export function map(at: usize, len: i32): i32 {
  const created = find(at, len, 0, '"createdAt":"');
  const score = find(at, len, 0, '"score":');
  if (created < 0 || score < 0) return 0;
  const date = at + created + 13;
  let end = 0;
  store<u8>(key, 0x5b);
  memory.copy(key + 1, date, 4);
  store<u8>(key + 5, 0x2c);
  if (load<u8>(date + 5) == 0x30) {
    store<u8>(key + 6, load<u8>(date + 6));
    end = 7;
  } else {
    memory.copy(key + 6, date + 5, 2);
    end = 8;
  }
  store<u8>(key + end, 0x5d);
  let last = score + 8;
  while (last < len && load<u8>(at + last) != 0x2c && load<u8>(at + last) != 0x7d) last++;
  host_emit(key, end + 1, at + score + 8, last - score - 8);
  return 0;
}

/** Sums integers. */
export function reduce(at: usize, len: i32): i32 {
  let sum: i64 = 0;
  let number: i64 = 0;
  let sign: i64 = 1;
  for (let place = find(at, len, 0, '"values":[') + 10; place < len; place++) {
    const byte = load<u8>(at + place);
    if (byte == 0x2d) sign = -1;
    else if (byte >= 0x30 && byte <= 0x39) number = number * 10 + (byte - 0x30);
    else {
      sum += sign * number;
      number = 0;
      sign = 1;
    }
  }
  const text = String.UTF8.encode(sum.toString());
  host_result(changetype<usize>(text), text.byteLength);
  return 0;
}

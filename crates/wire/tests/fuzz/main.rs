//! The fuzz targets of this crate with random inputs. `fuzz/` runs the same checks with inputs from libFuzzer.

mod forwarded;
mod frames;
mod multipart;

use settee_model::testing::fuzz;

const BODIES: &[&[u8]] = &[
    b"\x03--b\r\nContent-Type: application/json\r\n\r\n{}\r\n--b\r\nContent-Disposition: attachment; filename=\"a\"\r\n\r\n12\r\n--b--",
    b"\x01preamble\r\n--b \r\n\r\n\r\n--bx\r\n--b--\r\nepilogue",
];

const WORDS: &[&str] = &[
    "--b",
    "--b--",
    "\r\n",
    "\r",
    "\n",
    "\r\n--b",
    "\r\n--b--",
    "\r\n\r\n",
    "-",
    "b",
    " ",
    "\t",
    "Content-Length: 5",
    "Content-Encoding: gzip",
    ";",
    "filename=",
    "\"",
    "\\",
    "multipart/related; boundary=b",
];

#[test]
fn any_multipart_body() {
    fuzz(BODIES, WORDS, multipart::check);
}

const FRAMES: &[&[u8]] = &[
    b"\x05\0\0\0\x22\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\x0bPUT/d\0\0\0\x01\0\0\0\x02abc{}",
    b"\x01\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x000",
];

#[test]
fn any_frames() {
    fuzz(FRAMES, &["\0\0\0\x10", "\0\0\0\0", "\0\0\0\x01", "\0", "a"], frames::check);
}

const FORWARDED: &[&[u8]] = &[
    b"for=203.0.113.9;proto=https, for=\"[2001:db8::1]:4711\"",
    b"By=10.0.0.1;FOR=\"203\\.0.113.9\" , for=_hidden, for=unknown",
];

const HOPS: &[&str] =
    &["for=", "\"", "\\", ",", ";", "[", "]", ":", "203.0.113.9", "2001:db8::1", "unknown", " ", "=", "%", "x"];

#[test]
fn any_forwarded_header() {
    fuzz(FORWARDED, HOPS, forwarded::check);
}

//! Runs the fuzz targets of this crate with random inputs; `fuzz/` runs them with libFuzzer.

mod forwarded;
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

//! The fuzz target of this crate with random inputs: `fuzz/` hands the same check the inputs of libFuzzer.

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

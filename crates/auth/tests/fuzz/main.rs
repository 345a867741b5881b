//! Runs the fuzz targets of this crate with random inputs; `fuzz/` runs the same checks with libFuzzer.

mod credentials;

use settee_model::testing::fuzz;

const SEEDS: &[&[u8]] = &[
    b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1In0.c2ln",
    b"{\"alg\":\"HS256\",\"kid\":\"k\"}\n{\"sub\":\"u\",\"exp\":2000,\"roles\":\"a, b\"}",
    b"{\"alg\":\"HS256\",\"kid\":7,\"crit\":[]}\n{\"sub\":null,\"nbf\":-1,\"iat\":1.5,\"roles\":{\"a\":[1]},\"aud\":[\"x\"]}",
    b"YW5uOjAwMDAwMDAxOm1hYw",
    b"Basic YW5uOnNlY3JldA==",
    b"1000:7:12:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855:00",
    b"{iss, \"https://example.com\"}, exp, {aud,\"x\"}",
    b"{\"keys\":[{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\",\"kid\":\"k\"},{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"AA\"}]}",
    b"-----BEGIN PUBLIC KEY-----\\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\\n-----END PUBLIC KEY-----",
];

const WORDS: &[&str] = &[
    ".",
    ":",
    "=",
    "\n",
    "Bearer ",
    "Basic ",
    "\"alg\":",
    "\"none\"",
    "\"RS256\"",
    "\"kid\":",
    "\"exp\":",
    "1e400",
    "null",
    "[",
    "{",
    "}",
    "\\.",
    "-----BEGIN ",
    "-----END ",
    "0",
    "-1",
    "18446744073709551616",
];

#[test]
fn any_credentials() {
    fuzz(SEEDS, WORDS, credentials::check);
}

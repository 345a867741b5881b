//! What commands print.

use std::io::Write as _;

/// Prints, also to somebody who has heard enough, such as `head`.
pub(crate) fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

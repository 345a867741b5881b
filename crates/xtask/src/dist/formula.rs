//! The formula for Homebrew on Linux. It installs the `tar.gz` from the URL of the packages and verifies its checksum.

use crate::dist::archive;
use crate::dist::contents::{Release, VERSION};
use crate::dist::text::quoted;

pub(crate) const NAME: &str = "settee.rb";

pub(crate) fn make(release: &Release, checksum: &str) -> String {
    let home = quoted(&release.url);
    let place = quoted(&format!("{}/{}", release.url, archive::name()));
    format!(
        r##"class Settee < Formula
  desc "CouchDB-compatible document database in one program"
  homepage {home}
  url {place}
  version "{VERSION}"
  sha256 "{checksum}"
  license "Apache-2.0"

  depends_on arch: :x86_64
  depends_on :linux

  def install
    bin.install "bin/settee"
    man1.install Dir["share/man/man1/*.1"]
    bash_completion.install "share/bash-completion/completions/settee"
    zsh_completion.install "share/zsh/site-functions/_settee"
    fish_completion.install "share/fish/vendor_completions.d/settee.fish"
    doc.install Dir["share/doc/settee/*"]
  end

  service do
    run [opt_bin/"settee", "serve", "--data", var/"settee"]
    keep_alive true
    log_path var/"log/settee.log"
    error_log_path var/"log/settee.log"
  end

  test do
    assert_match "settee #{{version}}", shell_output("#{{bin}}/settee --version")
    port = free_port
    server = spawn bin/"settee", "serve", "--data", testpath/"data", "--port", port.to_s
    begin
      address = "http://127.0.0.1:#{{port}}/"
      assert_match "Welcome", shell_output("curl --silent --retry 20 --retry-connrefused #{{address}}")
    ensure
      Process.kill "TERM", server
      Process.wait server
    end
  end
end
"##
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::samples;

    #[test]
    fn the_archive_is_named_with_its_checksum() {
        let formula = make(&samples::contents().release, "abc");
        assert!(formula.contains(&format!("url \"https://example.org/{}\"", archive::name())), "{formula}");
        assert!(formula.contains("sha256 \"abc\"") && formula.contains("#{bin}/settee"), "{formula}");
        let words = |word: &str| formula.lines().filter(|line| line.trim() == word || line.ends_with(word)).count();
        assert_eq!(words("end"), words(" do") + 3, "three further blocks have an `end`:\n{formula}");
    }
}

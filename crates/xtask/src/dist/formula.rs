//! The formula for Homebrew on Linux. It installs the `tar.gz` from the URL of the packages and verifies its checksum.

use crate::dist::archive;
use crate::dist::contents::{Release, VERSION};
use crate::dist::target::Target;
use crate::dist::text::quoted;

pub(crate) const NAME: &str = "settee.rb";

pub(crate) fn make(release: &Release, archives: &[(Target, String)]) -> String {
    let home = quoted(&release.url);
    let sources: String = archives
        .iter()
        .map(|(target, checksum)| {
            let place = quoted(&format!("{}/{}", release.url, archive::name(*target)));
            format!("  {} do\n    url {place}\n    sha256 \"{checksum}\"\n  end\n\n", target.homebrew())
        })
        .collect();
    format!(
        r##"class Settee < Formula
  desc "CouchDB-compatible document database in one program"
  homepage {home}
  version "{VERSION}"
  license "Apache-2.0"

{sources}  depends_on :linux

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
    fn each_processor_has_its_archive_with_the_checksum() {
        let archives = [(Target::X86_64, "abc".to_owned()), (Target::Arm64, "def".to_owned())];
        let formula = make(&samples::contents(Target::X86_64).release, &archives);
        for (target, checksum) in &archives {
            let source = format!(
                "  {} do\n    url \"https://example.org/{}\"\n    sha256 \"{checksum}\"\n  end\n",
                target.homebrew(),
                archive::name(*target)
            );
            assert!(formula.contains(&source), "{formula}");
        }
        assert!(formula.contains("#{bin}/settee"), "{formula}");
        let words = |word: &str| formula.lines().filter(|line| line.trim() == word || line.ends_with(word)).count();
        assert_eq!(words("end"), words(" do") + 3, "three further blocks have an `end`:\n{formula}");
    }
}

# Plays the part of Homebrew for a formula, where there is no Homebrew: ruby brew.rb FORMULA PACKAGES PREFIX
# It reads the formula, compares the archive with its checksum, and runs what the formula says about installing.
require "digest"
require "fileutils"
require "pathname"

# Where things are installed to.
class Place
  def initialize(path)
    @path = path
  end

  def install(*sources)
    FileUtils.mkdir_p @path
    sources.flatten.each do |source|
      raise "#{source} is not in the archive" unless File.exist? source
      FileUtils.cp_r source, @path
    end
  end
end

class Formula
  class << self
    attr_reader :given, :tested

    def method_missing(name, *values)
      (@given ||= {})[name] = values.first
    end

    def respond_to_missing?(*)
      true
    end

    # Homebrew evaluates the block of its own processor.
    def on_intel
      yield if RbConfig::CONFIG["host_cpu"] == "x86_64"
    end

    def on_arm
      yield if RbConfig::CONFIG["host_cpu"] == "aarch64"
    end

    # What launches the server and what tests it is for Homebrew; that they are there is enough.
    def service(&block)
      raise "no service" unless block
    end

    def test(&block)
      @tested = block
    end
  end

  PLACES = {
    bin: "bin", man1: "share/man/man1", doc: "share/doc/settee",
    bash_completion: "etc/bash_completion.d", zsh_completion: "share/zsh/site-functions",
    fish_completion: "share/fish/vendor_completions.d"
  }.freeze

  PLACES.each do |name, below|
    define_method(name) { Place.new(File.join(ARGV[2], below)) }
  end
end

load File.expand_path(ARGV[0])
given = Settee.given
%i[desc homepage url version sha256 license].each { |name| raise "no #{name}" unless given[name].is_a? String }
raise "no test" unless Settee.tested
archive = File.join(ARGV[1], File.basename(given[:url]))
raise "another checksum" unless Digest::SHA256.file(archive).hexdigest == given[:sha256]
FileUtils.mkdir_p "unpacked"
system("tar", "--extract", "--directory", "unpacked", "--file", archive, exception: true)
# Homebrew enters the only folder of an archive.
Dir.chdir(Dir.glob("unpacked/*").first) { Settee.new.install }

//! [`Syslog`]: sends lines as messages of RFC 5424, a datagram each, to `[log] syslog_host`, by default to stderr as in
//! CouchDB. TCP and structured data are not supported.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use crate::config::Configuration;
use settee_settings::log;

/// Every collector must accept messages of this length.
const MESSAGE_BYTES: usize = 8192;

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "clock", "authpriv", "ftp", "ntp",
    "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyslogSettings {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) appid: String,
    pub(super) facility: u8,
}

impl SyslogSettings {
    pub(super) fn of(configuration: &Configuration) -> Self {
        Self {
            host: log::SYSLOG_HOST.of(configuration),
            port: u16::try_from(log::SYSLOG_PORT.of(configuration)).unwrap_or_default(),
            appid: log::SYSLOG_APPID.of(configuration),
            facility: facility(&log::SYSLOG_FACILITY.of(configuration)),
        }
    }
}

/// Any text other than a name or a number is `local7`, as in CouchDB.
fn facility(text: &str) -> u8 {
    let named = FACILITIES.iter().position(|name| *name == text);
    named.or_else(|| text.parse().ok()).and_then(|number| u8::try_from(number).ok()).map_or(23, |number| number.min(23))
}

pub(super) struct Syslog {
    socket: Option<(UdpSocket, SocketAddr)>,
    facility: u8,
    origin: String,
}

impl Syslog {
    pub(super) fn open(settings: &SyslogSettings) -> io::Result<Self> {
        let socket = if settings.host.is_empty() { None } else { Some(connect(&settings.host, settings.port)?) };
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let origin = format!("{} {} {}", name(&host), name(&settings.appid), std::process::id());
        Ok(Self { socket, facility: settings.facility, origin })
    }

    pub(super) fn write(&self, lines: &str) -> io::Result<()> {
        for line in lines.lines() {
            let mut message = self.message(line).into_bytes();
            match &self.socket {
                Some((socket, collector)) => {
                    message.truncate(MESSAGE_BYTES);
                    socket.send_to(&message, collector)?;
                }
                None => {
                    message.push(b'\n');
                    io::stderr().write_all(&message)?;
                }
            }
        }
        Ok(())
    }

    /// Converts `<PRIORITY>TIME REQUEST TEXT` to a message with the common header.
    fn message(&self, line: &str) -> String {
        let taken = || {
            let (priority, rest) = line.strip_prefix('<')?.split_once('>')?;
            let (time, rest) = rest.split_once(' ')?;
            let (request, text) = rest.split_once(' ')?;
            Some((priority.parse::<u8>().ok()?, time, name(request), text))
        };
        // Lines from before a change of the writer, and messages of the writer itself, have another form.
        let (severity, time, request, text) = taken().unwrap_or((4, "-", "-".to_owned(), line));
        format!("<{}>1 {time} {} {request} - {text}", self.facility << 3 | severity, self.origin)
    }
}

fn connect(host: &str, port: u16) -> io::Result<(UdpSocket, SocketAddr)> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
    let collector = (host, port).to_socket_addrs()?.next().ok_or_else(unknown)?;
    let any: SocketAddr = match collector {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    Ok((UdpSocket::bind(any)?, collector))
}

/// A field of a header is visible ASCII, or a dash.
fn name(text: &str) -> String {
    let text: String = text.chars().filter(char::is_ascii_graphic).take(48).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facilities_by_name_and_number() {
        for (text, expected) in [
            ("kern", 0),
            ("local2", 18),
            ("local7", 23),
            ("5", 5),
            ("23", 23),
            ("24", 23),
            ("-1", 23),
            ("", 23),
            ("x", 23),
        ] {
            assert_eq!(facility(text), expected, "{text}");
        }
    }

    #[test]
    fn lines_become_messages() {
        let syslog = Syslog { socket: None, facility: 18, origin: "host settee 7".to_owned() };
        for (line, expected) in [
            (
                "<5>2026-11-20T15:04:05.000000Z abc GET /",
                "<149>1 2026-11-20T15:04:05.000000Z host settee 7 abc - GET /",
            ),
            ("<3>2026-11-20T15:04:05.000000Z é x", "<147>1 2026-11-20T15:04:05.000000Z host settee 7 - - x"),
            ("[warning] 3 lines were lost", "<148>1 - host settee 7 - - [warning] 3 lines were lost"),
            ("<x>a b c", "<148>1 - host settee 7 - - <x>a b c"),
        ] {
            assert_eq!(syslog.message(line), expected);
        }
        assert_eq!((name("a b\n"), name("")), ("ab".to_owned(), "-".to_owned()));
    }
}

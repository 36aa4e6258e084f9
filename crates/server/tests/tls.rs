//! TLS sessions over loopback sockets: the server does not block, the client is rustls on a thread.
//! The certificates in `data` are self-signed for localhost and valid until 2120.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bloomery_server::tls::{Certificates, TlsSession};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

const FIRST: &[u8] = include_bytes!("data/first.pem");
const FIRST_KEY: &[u8] = include_bytes!("data/first.key");
const SECOND: &[u8] = include_bytes!("data/second.pem");
const SECOND_KEY: &[u8] = include_bytes!("data/second.key");

const DEADLINE: Duration = Duration::from_secs(60);

type Client = StreamOwned<ClientConnection, TcpStream>;

fn certificates() -> Certificates {
    Certificates::new(FIRST, FIRST_KEY).unwrap()
}

fn der(pem: &[u8]) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem).unwrap()
}

fn client_config(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(der(FIRST)).unwrap();
    roots.add(der(SECOND)).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn client(config: &Arc<ClientConfig>, socket: TcpStream) -> Client {
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), socket)
}

/// A server's socket that does not block, and a client's that does.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let outer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    outer.set_read_timeout(Some(DEADLINE)).unwrap();
    let (inner, _) = listener.accept().unwrap();
    outer.set_nodelay(true).unwrap();
    inner.set_nodelay(true).unwrap();
    inner.set_nonblocking(true).unwrap();
    (inner, outer)
}

/// Repeats a call while it returns `WouldBlock`, instead of an event loop.
fn wait<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(start.elapsed() < DEADLINE, "the other side does nothing");
                thread::sleep(Duration::from_micros(100));
            }
            done => return done,
        }
    }
}

/// Returns what the peer sends until it closes.
fn read_to_end(session: &mut TlsSession, socket: &mut TcpStream, chunk: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = vec![0; chunk];
    loop {
        match wait(|| session.read(socket, &mut part)).unwrap() {
            0 => return all,
            count => all.extend_from_slice(&part[..count]),
        }
    }
}

fn read_exact(session: &mut TlsSession, socket: &mut TcpStream, expected: &[u8]) {
    let mut part = vec![0; expected.len()];
    let mut have = 0;
    while have < part.len() {
        let count = wait(|| session.read(socket, &mut part[have..])).unwrap();
        assert!(count > 0, "the peer closed");
        have += count;
    }
    assert_eq!(part, expected);
}

fn write_all(session: &mut TlsSession, socket: &mut TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = wait(|| session.write(socket, bytes)).unwrap();
        assert!(count > 0);
        bytes = &bytes[count..];
    }
    finish(session, socket);
}

fn finish(session: &mut TlsSession, socket: &mut TcpStream) {
    wait(|| match session.flush(socket) {
        Ok(false) => Err(ErrorKind::WouldBlock.into()),
        done => done,
    })
    .unwrap();
    assert!(!session.wants_write());
}

fn pattern(count: usize) -> Vec<u8> {
    (0..count as u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .take(count)
        .collect()
}

/// Sends PING and expects PONG. Returns the server's certificate and how the handshake went.
fn ping(mut client: Client) -> (CertificateDer<'static>, HandshakeKind, Client) {
    client.write_all(b"PING").unwrap();
    let mut pong = [0; 4];
    client.read_exact(&mut pong).unwrap();
    assert_eq!(&pong, b"PONG");
    let seen = client.conn.peer_certificates().unwrap()[0].clone().into_owned();
    (seen, client.conn.handshake_kind().unwrap(), client)
}

fn pong(session: &mut TlsSession, socket: &mut TcpStream) {
    read_exact(session, socket, b"PING");
    write_all(session, socket, b"PONG");
}

/// One connection with a PING. Both sides stay open.
fn connect(
    certificates: &Certificates,
    config: &Arc<ClientConfig>,
) -> (TlsSession, TcpStream, (CertificateDer<'static>, HandshakeKind, Client)) {
    let (mut socket, outer) = sockets();
    let client = client(config, outer);
    let pinging = thread::spawn(move || ping(client));
    let mut session = certificates.accept().unwrap();
    pong(&mut session, &mut socket);
    (session, socket, pinging.join().unwrap())
}

fn echo(version: &'static SupportedProtocolVersion) {
    let (mut socket, outer) = sockets();
    let data = pattern(1 << 20);
    let sent = data.clone();
    let client = thread::spawn(move || {
        let mut client = client(&client_config(version), outer);
        let mut back = vec![0; sent.len()];
        let (mut start, mut size) = (0, 1);
        while start < sent.len() {
            let end = sent.len().min(start + size);
            client.write_all(&sent[start..end]).unwrap();
            client.read_exact(&mut back[start..end]).unwrap();
            (start, size) = (end, size * 3 % 40_009);
        }
        assert_eq!(client.conn.protocol_version(), Some(version.version));
        client.conn.send_close_notify();
        client.flush().unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        back
    });
    let mut session = certificates().accept().unwrap();
    assert!(session.is_handshaking());
    let mut seen = 0;
    let mut part = vec![0; 7_001];
    loop {
        let count = wait(|| session.read(&mut socket, &mut part)).unwrap();
        if count == 0 {
            break;
        }
        seen += count;
        part[..count].chunks(1_013).for_each(|some| write_all(&mut session, &mut socket, some));
    }
    assert!(!session.is_handshaking());
    assert_eq!(seen, data.len());
    session.close();
    finish(&mut session, &mut socket);
    assert!(client.join().unwrap() == data);
}

#[test]
fn tls13_echoes_a_mebibyte_in_odd_chunks() {
    echo(&TLS13);
}

#[test]
fn tls12_echoes_a_mebibyte_in_odd_chunks() {
    echo(&TLS12);
}

/// Returns the bytes of a ClientHello.
fn hello() -> Vec<u8> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut bytes = Vec::new();
    let mut client = ClientConnection::new(client_config(&TLS13), name).unwrap();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn close_within_client_hello_is_end_of_file() {
    let (mut socket, mut outer) = sockets();
    let bytes = hello();
    outer.write_all(&bytes[..bytes.len() / 2]).unwrap();
    drop(outer);
    let mut session = certificates().accept().unwrap();
    assert_eq!(wait(|| session.read(&mut socket, &mut [0; 9])).unwrap(), 0);
    assert_eq!(session.read(&mut socket, &mut [0; 9]).unwrap(), 0);
}

#[test]
fn close_after_client_hello_is_end_of_file() {
    let (mut socket, mut outer) = sockets();
    outer.write_all(&hello()).unwrap();
    drop(outer);
    let mut session = certificates().accept().unwrap();
    assert_eq!(wait(|| session.read(&mut socket, &mut [0; 9])).unwrap(), 0);
    assert_eq!(session.read(&mut socket, &mut [0; 9]).unwrap(), 0);
}

#[test]
fn reset_within_handshake_is_end_of_file() {
    let (mut socket, mut outer) = sockets();
    outer.write_all(&hello()).unwrap();
    let mut session = certificates().accept().unwrap();
    // Until the server has answered, so that the client closes with unread data.
    while outer.set_nonblocking(true).and_then(|()| outer.peek(&mut [0; 1])).is_err() {
        let error = session.read(&mut socket, &mut [0; 9]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    drop(outer);
    assert_eq!(wait(|| session.read(&mut socket, &mut [0; 9])).unwrap(), 0);
    assert!(session.is_handshaking());
}

#[test]
fn close_without_close_notify_is_end_of_file_after_the_data() {
    let (mut session, mut socket, (_, _, mut client)) =
        connect(&certificates(), &client_config(&TLS13));
    client.write_all(b"last words").unwrap();
    client.sock.shutdown(Shutdown::Both).unwrap();
    assert_eq!(read_to_end(&mut session, &mut socket, 3), b"last words");
}

#[test]
fn plaintext_is_invalid_data_and_gets_an_alert() {
    let (mut socket, mut outer) = sockets();
    outer.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let mut session = certificates().accept().unwrap();
    for _ in 0..2 {
        let error = wait(|| session.read(&mut socket, &mut [0; 9])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
    let error = session.write(&mut socket, b"PONG").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let mut alert = [0; 7];
    outer.read_exact(&mut alert).unwrap();
    // Content type alert, any version, two bytes: level fatal.
    assert_eq!((alert[0], &alert[3..6]), (21, &[0, 2, 2][..]));
}

#[test]
fn plaintext_before_a_protocol_error_is_returned_first() {
    let (mut session, mut socket, (_, _, mut client)) =
        connect(&certificates(), &client_config(&TLS13));
    let mut bytes = Vec::new();
    client.conn.writer().write_all(b"fine").unwrap();
    while client.conn.wants_write() {
        client.conn.write_tls(&mut bytes).unwrap();
    }
    bytes.extend_from_slice(&[23, 3, 3, 0, 32]);
    bytes.extend_from_slice(&[7; 32]);
    client.sock.write_all(&bytes).unwrap();
    read_exact(&mut session, &mut socket, b"fine");
    let error = wait(|| session.read(&mut socket, &mut [0; 9])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}

#[test]
fn replaced_certificate_is_for_new_connections() {
    let certificates = certificates();
    let config = client_config(&TLS13);
    let (mut session, mut socket, (seen, _, client)) = connect(&certificates, &config);
    assert_eq!(seen, der(FIRST));
    certificates.replace(SECOND, SECOND_KEY).unwrap();
    let (_, _, (seen, kind, _)) = connect(&certificates, &config);
    assert_eq!((seen, kind), (der(SECOND), HandshakeKind::Full));
    let pinging = thread::spawn(move || ping(client));
    pong(&mut session, &mut socket);
    assert_eq!(pinging.join().unwrap().0, der(FIRST));
}

#[test]
fn unfit_certificate_is_an_error_and_the_old_one_stays() {
    let certificates = certificates();
    let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END";
    let damaged = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let cases: [(&[u8], &[u8], &str); 7] = [
        (FIRST, SECOND_KEY, "the private key does not match"),
        (b"", FIRST_KEY, "no BEGIN CERTIFICATE"),
        (&FIRST[..300], FIRST_KEY, "an END line is missing"),
        (damaged, FIRST_KEY, "the first certificate of the chain is not valid"),
        (FIRST, FIRST, "no BEGIN PRIVATE KEY"),
        (FIRST, &FIRST_KEY[..99], "the private key is not valid PEM"),
        (FIRST, encrypted, "remove its passphrase"),
    ];
    for (chain, key, expected) in cases {
        for error in [certificates.replace(chain, key).err(), Certificates::new(chain, key).err()] {
            let error = error.unwrap();
            assert!(error.contains(expected), "{error}");
        }
    }
    assert_eq!(connect(&certificates, &client_config(&TLS13)).2.0, der(FIRST));
}

#[test]
fn second_connection_resumes_the_session() {
    for version in [&TLS12, &TLS13] {
        let certificates = certificates();
        let config = client_config(version);
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            assert_eq!(connect(&certificates, &config).2.1, expected);
        }
    }
}

/// Counts the ciphertext that the socket accepted.
struct Counting {
    socket: TcpStream,
    written: usize,
}

impl Read for Counting {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.read(into)
    }
}

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.socket.write(bytes)?;
        self.written += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[test]
fn peer_that_does_not_read_stops_writes() {
    let (mut session, socket, (_, _, mut client)) =
        connect(&certificates(), &client_config(&TLS13));
    let mut socket = Counting { socket, written: 0 };
    // More than the kernel buffers for a loopback connection.
    let data = pattern(32 << 20);
    let mut accepted: usize = 0;
    for size in [1, 100, 70_000, usize::MAX].into_iter().cycle() {
        let end = data.len().min(accepted.saturating_add(size));
        match session.write(&mut socket, &data[accepted..end]) {
            Ok(count) => accepted += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
        assert!(accepted.saturating_sub(socket.written) <= 256 << 10, "too much is buffered");
    }
    assert!(accepted < data.len());
    assert!(session.wants_write());
    assert!(!session.flush(&mut socket).unwrap());

    let expected = data.clone();
    let reading = thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert!(all == expected);
    });
    write_all(&mut session, &mut socket.socket, &data[accepted..]);
    session.close();
    finish(&mut session, &mut socket.socket);
    let error = session.write(&mut socket, b"more").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    reading.join().unwrap();
}

/// A socket that must not be used.
struct Untouchable;

impl Read for Untouchable {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        panic!("read from the socket")
    }
}

impl Write for Untouchable {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        panic!("write to the socket")
    }

    fn flush(&mut self) -> io::Result<()> {
        panic!("flush of the socket")
    }
}

#[test]
fn buffered_plaintext_needs_no_socket() {
    let (mut session, mut socket, (_, _, mut client)) =
        connect(&certificates(), &client_config(&TLS13));
    client.write_all(b"abc").unwrap();
    let mut byte = [0; 1];
    assert_eq!(wait(|| session.read(&mut socket, &mut byte)).unwrap(), 1);
    let mut rest = [0; 9];
    assert_eq!(session.read(&mut Untouchable, &mut rest).unwrap(), 2);
    assert_eq!((&byte, &rest[..2]), (b"a", &b"bc"[..]));
    assert!(session.flush(&mut Untouchable).unwrap());
}

#[test]
fn write_during_handshake_would_block() {
    let mut session = certificates().accept().unwrap();
    let error = session.write(&mut Untouchable, b"early").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(!session.wants_write());
}

/// Returns `WouldBlock` after each byte in both directions, and remembers what it returned last.
struct Trickle {
    socket: TcpStream,
    open: bool,
    drained: bool,
}

impl Read for Trickle {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into.len().min(1);
        let result = self.socket.read(&mut into[..count]);
        self.drained = result.as_ref().is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
        result
    }
}

impl Write for Trickle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.open = !self.open;
        if self.open {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.socket.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[test]
fn read_returns_would_block_only_when_the_socket_does() {
    let (socket, outer) = sockets();
    let client = client(&client_config(&TLS13), outer);
    let pinging = thread::spawn(move || ping(client));
    let mut socket = Trickle { socket, open: false, drained: false };
    let mut session = certificates().accept().unwrap();
    let mut part = [0; 9];
    let count = wait(|| {
        session.flush(&mut socket)?;
        let result = session.read(&mut socket, &mut part);
        assert!(result.is_ok() || socket.drained);
        result
    });
    assert_eq!(&part[..count.unwrap()], b"PING");
    let mut rest = &b"PONG"[..];
    while !rest.is_empty() || session.wants_write() {
        match session.write(&mut socket, rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert_eq!(pinging.join().unwrap().0, der(FIRST));
}

//! TLS on non-blocking sockets: the server's certificate, and the state of each connection.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, ServerConfig, ServerConnection};

/// Bytes of plaintext that one write encrypts at most. The next write waits until the socket has
/// accepted them, so this also bounds the unsent ciphertext, plus 22 bytes per record of 16 KiB.
const MAX_UNSENT: usize = 256 * 1024;

/// The certificate for new connections. It can be replaced while the server runs.
pub struct Certificates {
    config: RwLock<Arc<ServerConfig>>,
}

impl Certificates {
    /// Accepts the PEM of the chain, leaf first, and of its unencrypted private key.
    pub fn new(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        Ok(Self { config: RwLock::new(configure(chain, key)?) })
    }

    /// Connections that are open keep their certificate. On an error, new ones do too.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<(), String> {
        let config = configure(chain, key)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub fn accept(&self) -> Result<TlsSession, String> {
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        let mut connection = ServerConnection::new(config)
            .map_err(|error| format!("cannot start a TLS session: {error}"))?;
        connection.set_buffer_limit(Some(MAX_UNSENT));
        Ok(TlsSession { connection, failure: None, closed: false })
    }
}

fn configure(chain: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let certified = certify(chain, key, &provider)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot configure TLS: {error}"))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    // A resumed session does not show a certificate. Each certificate has its own ticket keys, so
    // that clients with an old ticket do a full handshake with the new certificate.
    config.ticketer = ring::Ticketer::new()
        .map_err(|error| format!("cannot create keys for session tickets: {error}"))?;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

fn certify(chain: &[u8], key: &[u8], provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("the certificate chain is not valid PEM: {}", damage(&error)))?;
    if chain.is_empty() {
        return Err("the certificate chain has no BEGIN CERTIFICATE section".into());
    }
    let key = provider.key_provider.load_private_key(parse_key(key)?).map_err(|_| {
        "the private key is not supported; use RSA with at least 2048 bits, ECDSA with P-256 or \
         P-384, or Ed25519"
    })?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => Err("the private key does not match the first \
             certificate of the chain; put the server's certificate first"
            .into()),
        Err(rustls::Error::InvalidCertificate(why)) => {
            Err(format!("the first certificate of the chain is not valid: {why}"))
        }
        Err(error) => Err(format!("the certificate cannot be used: {error}")),
    }
}

fn parse_key(key: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let encrypted = [&b"BEGIN ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"];
    if encrypted.iter().any(|mark| key.windows(mark.len()).any(|part| part == *mark)) {
        return Err("the private key is encrypted; remove its passphrase".into());
    }
    PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
        pem::Error::NoItemsFound => "the private key has no BEGIN PRIVATE KEY section".into(),
        error => format!("the private key is not valid PEM: {}", damage(&error)),
    })
}

/// Never quotes the input, which may be a private key.
fn damage(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "an END line is missing",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed",
        pem::Error::Base64Decode(_) => "a section is not base64",
        _ => "it cannot be parsed",
    }
}

/// One TLS connection. The caller owns the socket.
pub struct TlsSession {
    connection: ServerConnection,
    /// The protocol error that ended the connection.
    failure: Option<rustls::Error>,
    closed: bool,
}

impl TlsSession {
    /// Returns plaintext like `Read::read`: `Ok(0)` when the peer has closed the connection, with
    /// or without close_notify, and `WouldBlock` only after the socket returned it. Plaintext that
    /// is buffered is returned without a look at the socket. A protocol error is `InvalidData`,
    /// after its alert was sent as far as the socket accepts it.
    ///
    /// Also drives the handshake and sends its bytes. If `wants_write()` is true afterwards, call
    /// `flush` when the socket is writable.
    pub fn read(&mut self, socket: &mut (impl Read + Write), into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if let Some(error) = &self.failure {
                return Err(io::Error::new(ErrorKind::InvalidData, error.clone()));
            }
            match self.connection.read_tls(socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_reset(error.kind()) => return Ok(0),
                Err(error) => return Err(error),
            }
            self.failure = self.connection.process_new_packets().err();
            // If this fails, plaintext may still have arrived. The socket then reports its end to
            // the next read.
            let _ = self.flush(socket);
        }
    }

    /// Encrypts and sends. Returns how many bytes of plaintext were accepted, like `Write::write`,
    /// but `WouldBlock` instead of `Ok(0)` for a slice that is not empty.
    ///
    /// During the handshake it always returns `WouldBlock`. Try again after a `read` when
    /// `is_handshaking()` is false: the socket may not become writable once more.
    pub fn write(&mut self, socket: &mut (impl Read + Write), bytes: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if !self.flush(socket)? || (self.is_handshaking() && self.failure.is_none()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let accepted = self.connection.writer().write(bytes)?;
        if accepted > 0 && !self.wants_write() {
            // With AES-GCM in TLS 1.2, rustls sends close_notify after 2^24 records and then drops
            // what is written. TLS 1.3 changes its keys instead.
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.flush(socket)?;
        Ok(accepted)
    }

    /// Sends ciphertext that the socket did not accept before. `Ok(true)` when nothing is left.
    pub fn flush(&mut self, socket: &mut (impl Read + Write)) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns whether `flush` has ciphertext to send.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Queues close_notify, which the caller flushes. Later writes fail with `BrokenPipe`.
    pub fn close(&mut self) {
        self.closed = true;
        self.connection.send_close_notify();
    }
}

/// A peer that closes its socket with unread data resets the connection.
fn is_reset(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe
    )
}

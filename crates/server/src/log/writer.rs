//! Writes the log: batches into the current segment, and segments to the disk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::format::{Batch, FRAME_HEAD, HEADER_BYTES, Header};
use super::{Control, LogError, reader, segment_path};

const PROBE_BYTES: usize = 1 << 20;

/// When a write is on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fsync {
    /// Before [`Log::write`] returns.
    Always,
    /// After the next [`Log::flush`], which the caller calls each second.
    EverySecond,
    /// When the kernel chooses.
    Never,
}

/// Where and how a log is written.
pub struct Options {
    pub folder: PathBuf,
    /// Number of the segment to start. No segment may have it.
    pub segment: u64,
    /// Number of the last record before it.
    pub seq: u64,
    pub fsync: Fsync,
    /// A segment of this length is followed by another.
    pub segment_bytes: u64,
    pub control: Option<Control>,
}

/// A log that is open for writing. Any thread may call any method.
pub struct Log {
    folder: PathBuf,
    fsync: Fsync,
    segment_bytes: u64,
    /// Held while a batch is written or a segment is started.
    writer: Mutex<Writer>,
    /// Held during a flush.
    flush: Mutex<()>,
    /// Never held during I/O: an event loop asks for it.
    status: Mutex<Status>,
    /// Has the number of the last record, before a write returns.
    control: Option<Control>,
}

struct Writer {
    segment: Option<Arc<Segment>>, // None once it is closed
    end: u64,                      // of the last frame in the segment
    cut_at: u64,                   // length at which the next segment is started
    refused: usize,                // bytes of the last batch, if it could not be written
    dirty: bool,                   // the segment may have a frame after `end` that was refused
}

struct Status {
    seq: u64,
    number: u64,
    current: Option<Arc<Segment>>,
    old: Vec<Arc<Segment>>, // that no flush has brought to the disk
    // When the oldest write was made that may not be on the disk: of writes that are being flushed,
    // and of writes since then.
    flushing: Option<f64>,
    unflushed: Option<f64>,
}

struct Segment {
    path: PathBuf,
    file: File,
    header: Header,
    named: AtomicBool,    // its name and header are on the disk
    doubtful: AtomicBool, // a sync failed: the kernel may report success for lost data afterwards
    end: AtomicU64,       // of the last frame, once it is an old segment
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds a lock panics halfway through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes all bytes at an offset: one system call, unless the kernel writes less.
#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

/// Servers do not run there, but the library's extension is built with this crate.
#[cfg(not(unix))]
fn write_at(mut file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

/// Brings the name of a file to the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(()); // a folder cannot be opened
    }
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Removes files that a killed server left before they got their names.
fn remove_unnamed(folder: &Path) -> io::Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') && name.ends_with(".log.tmp") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

impl Segment {
    /// Creates a segment. It gets its name when its header is complete.
    fn create(folder: &Path, number: u64, first: u64, fsync: Fsync) -> io::Result<Self> {
        let path = segment_path(folder, number);
        if path.try_exists()? {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the segment exists already"));
        }
        let unnamed = temporary(&path);
        let made = || {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&unnamed)?;
            let header = Header::new(number, first);
            write_at(&file, &header.encode(), 0)?;
            if fsync == Fsync::Always {
                file.sync_all()?;
            }
            fs::rename(&unnamed, &path)?;
            if fsync == Fsync::Always {
                sync_folder(&path)?;
            }
            Ok(Self {
                path: path.clone(),
                file,
                header,
                named: AtomicBool::new(fsync == Fsync::Always),
                doubtful: AtomicBool::new(false),
                end: AtomicU64::new(HEADER_BYTES as u64),
            })
        };
        made().inspect_err(|_| {
            // Whatever is left of it would be in the way of the next try.
            let _ = fs::remove_file(&unnamed);
            let _ = fs::remove_file(&path);
        })
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.file.sync_data().and_then(|()| {
            if !self.named.load(Ordering::Acquire) {
                sync_folder(&self.path)?;
                self.named.store(true, Ordering::Release);
            }
            Ok(())
        });
        if synced.is_err() {
            self.doubtful.store(true, Ordering::Release);
        }
        synced
    }

    fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Acquire)
    }

    /// Writes an old segment to a new file that replaces it. After a failed sync the kernel does
    /// not try again to bring those pages to the disk, so all of them are written again.
    fn rewrite(&self) -> io::Result<()> {
        let end = self.end.load(Ordering::Acquire);
        let unnamed = temporary(&self.path);
        let written = || {
            let file = File::create(&unnamed)?;
            reader::copy_frames(&self.path, &self.header, end, &file)?;
            file.sync_all()?;
            fs::rename(&unnamed, &self.path)?;
            sync_folder(&self.path)
        };
        written().inspect_err(|_| {
            let _ = fs::remove_file(&unnamed);
        })?;
        self.doubtful.store(false, Ordering::Release);
        Ok(())
    }
}

impl Log {
    /// Creates the folder if needed, and starts a segment.
    pub fn open(options: Options) -> Result<Self, LogError> {
        let Options { folder, segment, seq, fsync, segment_bytes, control } = options;
        let effect = "the log cannot be started";
        fs::create_dir_all(&folder)
            .and_then(|()| remove_unnamed(&folder))
            .map_err(|problem| LogError::new(&folder, &problem, effect))?;
        let current = new_segment(&folder, segment, seq + 1, fsync)?;
        Ok(Self {
            writer: Mutex::new(Writer {
                segment: Some(current.clone()),
                end: HEADER_BYTES as u64,
                cut_at: segment_bytes,
                refused: 0,
                dirty: false,
            }),
            flush: Mutex::new(()),
            status: Mutex::new(Status {
                seq,
                number: segment,
                current: Some(current),
                old: Vec::new(),
                flushing: None,
                unflushed: None,
            }),
            folder,
            fsync,
            segment_bytes,
            control,
        })
    }

    /// Number of the last record.
    pub fn seq(&self) -> u64 {
        lock(&self.status).seq
    }

    /// Number of the segment that is written to.
    pub fn segment(&self) -> u64 {
        lock(&self.status).number
    }

    pub fn path(&self) -> PathBuf {
        segment_path(&self.folder, self.segment())
    }

    /// When the oldest write was made that may not be on the disk, in the time that `write` got.
    pub fn oldest_unsynced(&self) -> Option<f64> {
        let status = lock(&self.status);
        status.flushing.or(status.unflushed)
    }

    /// Whether a flush is running.
    pub fn is_flushing(&self) -> bool {
        self.flush.try_lock().is_err()
    }

    /// Writes a batch, all or nothing, and returns the number of its last record. After an error
    /// nothing of the batch is ever read. `now` is a monotonic time in seconds.
    pub fn write(&self, batch: &mut Batch, now: f64) -> Result<u64, LogError> {
        let mut writer = lock(&self.writer);
        let seq = lock(&self.status).seq;
        if batch.count() == 0 {
            return Ok(seq);
        }
        if writer.dirty {
            self.abandon(&mut writer)?;
        }
        let segment = writer.open()?;
        if segment.is_doubtful() {
            return Err(LogError(format!(
                "{}: an earlier sync failed: nothing was written; retry starts another segment",
                segment.path.display()
            )));
        }
        let bytes = batch.frame(segment.header.seed(), seq + 1);
        if let Err(problem) = self.write_frame(&segment, bytes, writer.end) {
            writer.refused = bytes.len();
            self.discard(&mut writer, &segment);
            return Err(LogError::new(&segment.path, &problem, "nothing was written"));
        }
        writer.refused = 0;
        writer.end += bytes.len() as u64;
        let seq = seq + batch.count();
        {
            let mut status = lock(&self.status);
            status.seq = seq;
            status.unflushed.get_or_insert(now);
        }
        if let Some(control) = &self.control {
            control.wrote(seq);
        }
        if writer.end >= writer.cut_at && self.start_next(&mut writer).is_err() {
            writer.cut_at = writer.end + self.segment_bytes / 16; // this segment still serves
        }
        Ok(seq)
    }

    fn write_frame(&self, segment: &Segment, bytes: &[u8], at: u64) -> io::Result<()> {
        write_at(&segment.file, bytes, at)?;
        if self.fsync == Fsync::Always {
            segment.sync()?;
        }
        Ok(())
    }

    /// Removes the frame of a batch that failed. If the file can neither be truncated nor
    /// overwritten, or may have reached the disk with the frame, the next segment makes it void.
    fn discard(&self, writer: &mut Writer, segment: &Segment) {
        let cleared = segment.file.set_len(writer.end);
        let cleared = cleared.or_else(|_| write_at(&segment.file, &[0; FRAME_HEAD], writer.end));
        if cleared.is_err() || segment.is_doubtful() {
            writer.dirty = true;
            let _ = self.abandon(writer);
        }
    }

    fn abandon(&self, writer: &mut Writer) -> Result<(), LogError> {
        self.start_next(writer)?;
        writer.dirty = false;
        Ok(())
    }

    /// Starts the next segment and returns its number. A flush closes the old one.
    pub fn cut(&self) -> Result<u64, LogError> {
        let mut writer = lock(&self.writer);
        self.start_next(&mut writer)
    }

    fn start_next(&self, writer: &mut Writer) -> Result<u64, LogError> {
        let old = writer.open()?;
        let (number, first) = {
            let status = lock(&self.status);
            (status.number + 1, status.seq + 1)
        };
        let segment = new_segment(&self.folder, number, first, self.fsync)?;
        old.end.store(writer.end, Ordering::Release);
        writer.segment = Some(segment.clone());
        writer.end = HEADER_BYTES as u64;
        writer.cut_at = self.segment_bytes;
        let mut status = lock(&self.status);
        status.current = Some(segment);
        status.number = number;
        status.old.push(old);
        Ok(number)
    }

    /// Checks whether the log can be written again, and starts another segment if the current one
    /// must not be used any more.
    pub fn retry(&self) -> Result<(), LogError> {
        {
            let mut writer = lock(&self.writer);
            if writer.dirty || writer.open()?.is_doubtful() {
                self.abandon(&mut writer)?;
            }
            if let Err(problem) = self.probe(&writer) {
                let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
                let path = writer.open()?.path.clone();
                // Another segment does not help if the disk is full, or if this one is unused.
                if full.contains(&problem.kind()) || writer.end == HEADER_BYTES as u64 {
                    return Err(LogError::new(&path, &problem, "the log cannot be written yet"));
                }
                self.start_next(&mut writer)?;
                self.probe(&writer).map_err(|problem| {
                    LogError::new(&path, &problem, "the log cannot be written yet")
                })?;
            }
            writer.refused = 0;
        }
        let doubtful = lock(&self.status).old.iter().any(|segment| segment.is_doubtful());
        if doubtful { self.flush().map(|_| ()) } else { Ok(()) }
    }

    /// Writes as many bytes as were refused, and removes them again.
    fn probe(&self, writer: &Writer) -> io::Result<()> {
        if writer.refused == 0 {
            return Ok(());
        }
        let Some(segment) = &writer.segment else { return Ok(()) };
        let zeros = vec![0; writer.refused.min(PROBE_BYTES)]; // never a frame
        let written = (0..writer.refused).step_by(PROBE_BYTES).try_for_each(|done| {
            let part = &zeros[..zeros.len().min(writer.refused - done)];
            self.write_frame(segment, part, writer.end + done as u64)
        });
        let removed = segment.file.set_len(writer.end);
        written.and(removed)
    }

    /// Brings everything to the disk that was written before, and returns the number of the last
    /// record of it.
    pub fn flush(&self) -> Result<u64, LogError> {
        let _one = lock(&self.flush);
        let (seq, old, current) = {
            // A write that is complete by now is in one of these segments. A later one finds that
            // nothing is unflushed, and notes its own time.
            let mut status = lock(&self.status);
            let unflushed = status.unflushed.take();
            status.flushing = status.flushing.or(unflushed);
            (status.seq, status.old.clone(), status.current.clone())
        };
        for segment in old {
            let done = match (self.fsync, segment.is_doubtful()) {
                (Fsync::Never, _) => Ok(()),
                (_, true) => segment.rewrite(),
                _ => segment.sync(),
            };
            done.map_err(|problem| unsynced(&segment.path, &problem))?;
            lock(&self.status).old.retain(|other| !Arc::ptr_eq(other, &segment));
        }
        if let Some(segment) = current.filter(|_| self.fsync != Fsync::Never) {
            let done = match segment.is_doubtful() {
                true => Err(io::Error::other("an earlier sync failed")),
                false => segment.sync(),
            };
            done.map_err(|problem| unsynced(&segment.path, &problem))?;
        }
        lock(&self.status).flushing = None;
        Ok(seq)
    }

    /// Brings everything to the disk and closes the files. They are closed after an error, too.
    pub fn close(&self) -> Result<u64, LogError> {
        let mut flushed = self.flush();
        if flushed.is_err() && self.retry().is_ok() {
            flushed = self.flush();
        }
        let mut writer = lock(&self.writer);
        writer.segment = None;
        let mut status = lock(&self.status);
        status.current = None;
        status.old.clear();
        flushed
    }
}

impl Writer {
    fn open(&self) -> Result<Arc<Segment>, LogError> {
        self.segment.clone().ok_or_else(|| LogError("the log is closed".into()))
    }
}

fn unsynced(path: &Path, problem: &io::Error) -> LogError {
    LogError::new(path, problem, "the last writes may not survive a power cut")
}

fn new_segment(
    folder: &Path,
    number: u64,
    first: u64,
    fsync: Fsync,
) -> Result<Arc<Segment>, LogError> {
    Segment::create(folder, number, first, fsync).map(Arc::new).map_err(|problem| {
        LogError::new(&segment_path(folder, number), &problem, "no segment can be created")
    })
}

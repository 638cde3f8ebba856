//! Bytes over a socket, and a descriptor that goes with them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Sends all of these bytes at once, or fails: it never waits.
pub(crate) fn send(to: impl AsFd, bytes: &[u8], along: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let fds = along.as_slice();
    if !fds.is_empty() {
        rights.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(to, &[io::IoSlice::new(bytes)], &mut rights, flags)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// What there is, up to so many bytes, and the last descriptor that came with it; no bytes at the end.
pub(crate) fn receive(from: impl AsFd, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [io::IoSliceMut::new(&mut *into)];
        let count = match recvmsg(&from, &mut slices, &mut rights, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => got.bytes,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let came = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.last(),
            _ => None,
        });
        return Ok((count, came.last()));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn bytes_arrive_with_a_descriptor_or_without() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        send(&ours, b"with", Some(file.as_fd())).unwrap();
        let mut bytes = [0; 16];
        let (count, came) = receive(&theirs, &mut bytes).unwrap();
        assert_eq!((&bytes[..count], came.is_some()), (&b"with"[..], true));
        send(&ours, b"none", None).unwrap();
        let (count, came) = receive(&theirs, &mut bytes).unwrap();
        assert_eq!((&bytes[..count], came.is_some()), (&b"none"[..], false));
        drop(ours);
        assert_eq!(receive(&theirs, &mut bytes).unwrap().0, 0);
        assert!(send(&theirs, b"gone", None).is_err());
    }
}

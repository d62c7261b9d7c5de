//! The TUN device: made so that it stays without a process, and opened for packets.

use std::{
    fs::{File, OpenOptions},
    io,
    mem::zeroed,
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
};

use nix::{
    errno::Errno,
    libc::{
        self, IFF_NO_PI, IFF_TUN, IFF_VNET_HDR, IFNAMSIZ, O_NONBLOCK, TUN_F_CSUM, TUN_F_TSO4,
        TUNSETIFF, TUNSETOFFLOAD, TUNSETPERSIST, c_ulong, ifreq,
    },
};

use crate::error::TunnelError;

/// The device through which TUN devices are made and opened.
const CONTROL: &str = "/dev/net/tun";

/// Creates a device that stays when the process ends. An existing device is kept, and also stays.
pub fn make_persistent(name: &str) -> Result<(), TunnelError> {
    let file = open(name)?;
    set_persistent(&file, true).map_err(|error| TunnelError::device(name, error))
}

/// Opens a device, and creates it if it does not exist. Packets that are read may be TCP
/// super-packets, and lack checksums.
pub(crate) fn open(name: &str) -> Result<File, TunnelError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(O_NONBLOCK)
        .open(CONTROL);
    let file = file.map_err(TunnelError::NoTun)?;
    attach(&file, name).map_err(|error| {
        match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
            Errno::EBUSY => TunnelError::InUse {
                name: name.to_owned(),
            },
            _ => TunnelError::device(name, error),
        }
    })?;
    Ok(file)
}

/// Sets if the device stays when no process has it open.
pub(crate) fn set_persistent(file: &File, stays: bool) -> io::Result<()> {
    control(file, TUNSETPERSIST, c_ulong::from(stays))
}

fn attach(file: &File, name: &str) -> io::Result<()> {
    // SAFETY: the structure is plain data, and zeroes are valid in all its fields.
    let mut request: ifreq = unsafe { zeroed() };
    if name.len() >= IFNAMSIZ {
        return Err(Errno::ENAMETOOLONG.into());
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    let flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and the kernel reads and writes one `ifreq`, which lives
    // until the call returns.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) })?;
    control(file, TUNSETOFFLOAD, (TUN_F_CSUM | TUN_F_TSO4).into())
}

fn control(file: &File, request: libc::Ioctl, argument: c_ulong) -> io::Result<()> {
    // SAFETY: the descriptor is open, and these requests take a number and no pointer.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), request, argument) })?;
    Ok(())
}

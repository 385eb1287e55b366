"""Runs untrusted Python in a process that gives up its rights first. Started as a script, never imported by a caller.

The jail is made of kernel features that need no privileges and cannot be undone from inside: resource limits, fresh
namespaces where the system allows them, Landlock (only the interpreter's own files can be read, only the working folder
written) and a seccomp filter (no sockets, no new processes or programs, no signals, no tracing, no mounts). Forbidden
substrings would be no safety at all. If Landlock or seccomp is missing, nothing is run.

Usage: ``python -I -B jail.py '{"ready_fd": 3, "cpu_s": 10, "memory_bytes": …, "file_bytes": …}' < code``. One byte is
written to `ready_fd` once the jail is shut, so that the parent can tell its refusal from whatever the code does.
"""

from __future__ import annotations

import ast
import ctypes
import json
import os
import platform
import resource
import struct
import sys
import traceback
from types import TracebackType

# Linux UAPI: linux/sched.h, linux/prctl.h, linux/landlock.h, linux/seccomp.h, linux/audit.h
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWNET = (
    0x0002_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x4000_0000,
)  # fmt: skip
_CLONE_THREAD = 0x0001_0000
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_FS_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}  # 5 and above: 16 rights
_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000

_READABLE = ("/usr", "/lib", "/lib64", "/etc/localtime", "/etc/ld.so.cache", "/dev/null", "/dev/urandom", "/dev/zero")

_NEW_CALLS = {  # the same number on every architecture
    "pidfd_send_signal": 424, "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432,
    "pidfd_getfd": 438, "mount_setattr": 442, "fchmodat2": 452,
}  # fmt: skip
_DENIED = {
    "x86_64": {
        "socket": 41, "connect": 42, "bind": 49, "listen": 50, "socketpair": 53, "fork": 57, "vfork": 58,
        "execve": 59, "kill": 62, "truncate": 76, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93,
        "lchown": 94, "ptrace": 101, "rt_sigqueueinfo": 129, "mknod": 133, "pivot_root": 155, "chroot": 161,
        "mount": 165, "umount2": 166, "swapon": 167, "reboot": 169, "init_module": 175, "setxattr": 188,
        "lsetxattr": 189, "fsetxattr": 190, "tkill": 200, "tgkill": 234, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "mknodat": 259, "fchownat": 260, "fchmodat": 268, "unshare": 272,
        "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308,
        "process_vm_readv": 310, "process_vm_writev": 311, "finit_module": 313, "bpf": 321, "execveat": 322,
        "userfaultfd": 323,
    },
    "aarch64": {
        "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "mknodat": 33, "umount2": 39, "mount": 40,
        "pivot_root": 41, "truncate": 45, "chroot": 51, "fchmod": 52, "fchmodat": 53, "fchownat": 54,
        "fchown": 55, "unshare": 97, "kexec_load": 104, "init_module": 105, "ptrace": 117, "kill": 129,
        "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "reboot": 142, "socket": 198, "socketpair": 199,
        "bind": 200, "listen": 201, "connect": 203, "add_key": 217, "request_key": 218, "keyctl": 219,
        "execve": 221, "swapon": 224, "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "open_by_handle_at": 265,
        "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "finit_module": 273, "bpf": 280,
        "execveat": 281, "userfaultfd": 282,
    },
}  # fmt: skip
_SPECIAL = {"x86_64": {"clone": 56, "prlimit64": 302}, "aarch64": {"clone": 220, "prlimit64": 261}}
_CLONE3 = 435
_AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32_BIT = 0x4000_0000


_FILE = "program.py"
"""What tracebacks call the code."""


class JailError(Exception):
    """The jail cannot be shut on this machine."""


def shut(cpu_s: int, memory_bytes: int, file_bytes: int) -> None:
    """Give up every right that running a program in the working folder does not need; cannot be undone.

    Raises:
        JailError: If Landlock or seccomp is missing.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _DENIED:
        raise JailError(f"needs Linux on x86_64 or aarch64, not {sys.platform} on {machine}")
    libc = ctypes.CDLL(None, use_errno=True)
    namespaces = _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS | _CLONE_NEWNS
    libc.unshare(namespaces)  # a bonus where allowed: the filters below stand without it
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))  # SIGXCPU first, which says why, then SIGKILL
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise JailError("the kernel does not support no_new_privs")
    _restrict_files(libc)
    _restrict_calls(libc, machine)


def _restrict_files(libc: ctypes.CDLL) -> None:
    abi = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        raise JailError("the kernel does not offer Landlock (Linux 5.13 or newer)")
    rights = _FS_RIGHTS_BY_ABI.get(abi, (1 << 16) - 1)
    attributes = struct.pack("QQQ", rights, 0b11, 0b11)[: 8 if abi < 4 else 16 if abi < 6 else 24]  # files, TCP, scopes
    ruleset = libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise JailError("Landlock refused the rules")
    for path in {*_READABLE, sys.prefix, sys.base_prefix, sys.exec_prefix}:
        _allow(libc, ruleset, path, rights & (_READ_FILE | _READ_DIR | _EXECUTE))
    _allow(libc, ruleset, os.getcwd(), rights & ~(_EXECUTE | _IOCTL_DEV))
    if libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
        raise JailError("Landlock could not be switched on")
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not on this system
    if not os.path.isdir(path):
        rights &= _READ_FILE | _WRITE_FILE | _EXECUTE | _TRUNCATE
    added = libc.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, parent), 0)
    os.close(parent)
    if added != 0:
        raise JailError(f"Landlock refused the rule for {path}")


def _restrict_calls(libc: ctypes.CDLL, machine: str) -> None:
    """A classic BPF program over struct seccomp_data {int nr; u32 arch; u64 ip; u64 args[6]}, little-endian."""
    load, equal, above, masked, end = 0x20, 0x15, 0x35, 0x45, 0x06  # LD|W|ABS, JEQ, JGE, JSET, RET

    def step(code: int, if_true: int, if_false: int, value: int) -> bytes:
        return struct.pack("=HBBI", code, if_true, if_false, value)

    refuse, allow = step(end, 0, 0, _ERRNO | _EPERM), step(end, 0, 0, _ALLOW)
    special = _SPECIAL[machine]
    program = [
        step(load, 0, 0, 4), step(equal, 1, 0, _AUDIT_ARCH[machine]), step(end, 0, 0, _KILL), step(load, 0, 0, 0),
        step(above, 0, 1, _X32_BIT), refuse,
        step(equal, 0, 1, _CLONE3), step(end, 0, 0, _ERRNO | _ENOSYS),  # then libc falls back to clone
        step(equal, 0, 4, special["clone"]), step(load, 0, 0, 16), step(masked, 0, 1, _CLONE_THREAD), allow, refuse,
        step(equal, 0, 4, special["prlimit64"]), step(load, 0, 0, 16), step(equal, 0, 1, 0), allow, refuse,
    ]  # fmt: skip
    for number in sorted({*_DENIED[machine].values(), *_NEW_CALLS.values()}):
        program += [step(equal, 0, 1, number), refuse]
    code = ctypes.create_string_buffer(b"".join([*program, allow]))
    pointer = struct.pack("@HP", len(program) + 1, ctypes.addressof(code))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, pointer, 0, 0) != 0:
        raise JailError("the kernel does not support seccomp filters")


def run(source: str) -> int:
    """Run `source` as a program would be run, and show the value of a last bare expression; the exit status."""
    names: dict[str, object] = {"__name__": "__main__", "__builtins__": __builtins__}
    try:
        tree = ast.parse(source, _FILE)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, _FILE, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), _FILE, "eval"), names)
            if value is not None:
                sys.stdout.write(f"{value!r}\n")
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        sys.stderr.write(f"{leaving.code}\n")
        return 1
    except BaseException as error:  # the boundary to the code of a stranger
        sys.stdout.flush()
        error.__traceback__ = _own_frames(error)
        sys.stderr.write("".join(traceback.format_exception(error, limit=-20)))
        return 1
    finally:
        sys.stdout.flush()
    return 0


def _own_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame of the code on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != _FILE:
        trace = trace.tb_next
    return trace


def main() -> int:
    """Shut the jail, say so, run the code from standard input."""
    settings = json.loads(sys.argv[1])
    source = sys.stdin.buffer.read().decode("utf-8", "replace")
    ready = settings.pop("ready_fd")
    try:
        shut(**settings)
    except (JailError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 70
    os.write(ready, b"1")
    os.close(ready)
    return run(source)


if __name__ == "__main__":
    sys.exit(main())

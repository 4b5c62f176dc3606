"""What protects the passphrase of a key file where file modes do not: DPAPI, on Windows.

Elsewhere a key file has mode 0600 and no passphrase: one that lies beside it would protect
nothing. On Windows the passphrase is encrypted by the system for the user who is logged in, so a
copied folder opens on no other PC and for no other user. Written after Microsoft's documentation
of ``CryptProtectData``; not run on Windows.
"""

from __future__ import annotations

import sys

from engine.errors import StorageError

_UI_FORBIDDEN = 1  # CRYPTPROTECT_UI_FORBIDDEN: a service has nobody to ask
_PURPOSE = b"daisy identity 1"  # entropy: another program's blob is none of ours

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    class _Blob(ctypes.Structure):
        _fields_ = (("size", wintypes.DWORD), ("data", ctypes.POINTER(ctypes.c_char)))

    def _blob(data: bytes) -> _Blob:
        return _Blob(len(data), ctypes.create_string_buffer(data, len(data)))

    def _called(name: str, data: bytes) -> bytes:
        crypt32 = ctypes.WinDLL("crypt32", use_last_error=True)
        result = _Blob()
        is_done = getattr(crypt32, name)(
            ctypes.byref(_blob(data)),
            None,
            ctypes.byref(_blob(_PURPOSE)),
            None,
            None,
            _UI_FORBIDDEN,
            ctypes.byref(result),
        )
        if not is_done:
            raise StorageError(
                f"Windows would not open this PC's key: {name} failed with error "
                f"{ctypes.get_last_error()}.",
                "Sign in as the user who installed Daisy.",
            )
        try:
            return ctypes.string_at(result.data, result.size)
        finally:
            ctypes.WinDLL("kernel32").LocalFree(result.data)

    def protect(passphrase: bytes) -> bytes:
        """Return a passphrase so that only this user of this PC can read it.

        Raises:
            StorageError: Windows refuses.
        """
        return _called("CryptProtectData", passphrase)

    def unprotect(protected: bytes) -> bytes:
        """Return the passphrase that ``protect`` was given.

        Raises:
            StorageError: It was protected for another user or on another PC, or is damaged.
        """
        return _called("CryptUnprotectData", protected)

    PROTECTS = True

else:

    def protect(passphrase: bytes) -> bytes:
        """Return the passphrase; there is nothing here that protects it.

        Raises:
            StorageError: Always: a passphrase is asked for only where it can be protected.
        """
        raise StorageError(f"This system can't protect a passphrase of {len(passphrase)} bytes.")

    def unprotect(protected: bytes) -> bytes:
        """Refuse: a protected passphrase was made on another system.

        Raises:
            StorageError: Always.
        """
        raise StorageError(
            f"This PC's key of {len(protected)} bytes was protected on another system."
        )

    PROTECTS = False

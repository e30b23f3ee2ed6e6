"""A hash at the end of a JSON record, by which one that was altered is told from one that says something else.

The last member of a sealed record is `"seal"`: blake2b-64, in hexadecimal digits, of all bytes before the comma in
front of it. A flipped bit may turn one number into another and leave the JSON whole; it does not leave the seal right.
"""

import re
from hashlib import blake2b

_SEAL = re.compile(rb'(?:, ?)?"seal": ?"([0-9a-f]{16})"\}\s*\Z')
_LENGTH = len(b', "seal": "0123456789abcdef"}\r\n')


def add_seal(record: bytes) -> bytes:
    """Append the seal to the JSON object `record`, as its last member."""
    body = record.rstrip()[:-1]
    return body + (b"" if body == b"{" else b", ") + b'"seal": "' + _hash(body) + b'"}'


def is_broken(record: bytes) -> bool:
    """Return True if `record` has a seal that is not the hash of its bytes."""
    found = _SEAL.search(record, max(0, len(record) - _LENGTH))
    return found is not None and _hash(record[: found.start()]) != found[1]


def _hash(body: bytes) -> bytes:
    return blake2b(body, digest_size=8).hexdigest().encode()

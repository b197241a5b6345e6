"""Findings of the inventory stage about sources, reconciliation, staging and verification."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "INV036",
        "revision moved",
        "warning",
        "The branch that was asked for, or a file of the folder, changed while the inventory was taken. The "
        "record is of the state that was pinned at its beginning.",
        "Take the inventory again if you mean the newer state; name the full hash to stay with this one.",
    ),
    Entry(
        "INV037",
        "listing only",
        "warning",
        "The release is there and its files are listed, but their content cannot be read from here, so that "
        "nothing is known of its tensors.",
        "Accept the release's terms on its page and log in with `hf auth login` or set HF_TOKEN; offline, "
        "download the release first.",
        undecided="unverified",
    ),
    Entry(
        "INV038",
        "cache not writable",
        "info",
        "The hub's cache on this machine takes no files. Small files were read all the same and have to "
        "be read again next time.",
        "Make the folder writable, or point HF_HUB_CACHE to one that is.",
    ),
    Entry(
        "INV039",
        "cached snapshot without a listing",
        "info",
        "Offline, only the files in the hub's cache are known, and it holds no list of what the commit "
        "consists of. Files that are missing here may be missing from the download alone.",
        "Take the inventory once with network, or download the release with huggingface_hub 2 or newer.",
    ),
)

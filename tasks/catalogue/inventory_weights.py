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
    Entry(
        "INV080",
        "hash differs",
        "error",
        "A tensor file was read from its first byte to its last, and its hash is not the one that the source "
        "gives for it.",
        "Delete the file and fetch it again; if it differs again, use another mirror or tell the publisher.",
    ),
    Entry(
        "INV081",
        "content changed",
        "warning",
        "A tensor file, for which no source vouches, has another content than when it was last verified. "
        "Where its size, inode and time of change are the same, it was damaged where it lies (error).",
        "If you did not replace the file yourself, restore it from where it came.",
    ),
    Entry(
        "INV082",
        "NaN or infinity in a weight",
        "error",
        "A tensor holds elements that are no finite numbers. Every output that they reach is NaN.",
        "Compare the file's hash with the publisher's; if it matches, the release is broken: tell them.",
    ),
    Entry(
        "INV083",
        "weight of zeros",
        "warning",
        "Every element of a weight that is no bias is zero: what it belongs to does nothing.",
        "Hold the release against an earlier revision, and ask the publisher whether this is meant.",
    ),
    Entry(
        "INV084",
        "very large weight",
        "warning",
        "An element of a weight is far larger than those of published models, as it becomes when bytes are "
        "read in the wrong dtype or order, or when training diverged.",
        "Look at the tensor; expect overflow where activations are fp16.",
    ),
    Entry(
        "INV085",
        "numbers not looked at",
        "info",
        "The files were hashed, but the numbers of some tensors were not looked at: they are packed codes or "
        "of a block format, or their file is cut short.",
        "Rely on the hash, or convert the release to a plain format and verify that.",
    ),
    Entry(
        "INV086",
        "tensor file could not be verified",
        "error",
        "A tensor file could not be read to its end, or changed while it was read.",
        "Wait until the folder is complete and still, check disk and permissions, and verify again.",
    ),
    Entry(
        "INV087",
        "hashes recorded",
        "info",
        "No source vouches for these tensor files, as is the case for a folder. Their hashes were computed "
        "and remembered.",
        "Compare them with the publisher's if you have them; the next verification compares with these.",
    ),
    Entry(
        "INV088",
        "not staged",
        "warning",
        "The weights could not be fetched to this machine: the disk, the folder, the network or the server "
        "did not allow it. The inventory itself is complete.",
        "Remove the cause and run again: what has come is kept.",
        undecided="unverified",
    ),
    Entry(
        "INV040",
        "implied tensor missing",
        "error",
        "The model that the config describes has a tensor that is stored nowhere. A loader fills it with "
        "random numbers.",
        "Fetch the shard that should hold it, or correct the config.",
    ),
    Entry(
        "INV041",
        "tensor that the config does not imply",
        "warning",
        "A tensor is stored that the model of the config has no place for. Loaders leave it out.",
        "Find out whether the config, or the class that it names, is that of these weights.",
    ),
    Entry(
        "INV042",
        "shape not the implied one",
        "error",
        "A tensor has another shape than the model that the config describes. Loaders refuse it or fill it "
        "with random numbers.",
        "Correct the config, or fetch the weights that belong to it.",
    ),
    Entry(
        "INV043",
        "implied tensors not known",
        "info",
        "The model that the config describes could not be built without running code of the repository, so "
        "that the tensors were not held against it one by one.",
        "Read the reason; a newer transformers may know the model type.",
    ),
    Entry(
        "INV044",
        "tensors outside the set",
        "warning",
        "A tensor file that neither the index nor the numbering names holds tensors that no other file has. "
        "transformers does not load it; engines that take every file do. They were not counted.",
        "Ask the publisher whether the file belongs to the model, and add it to the index if it does.",
    ),
    Entry(
        "INV045",
        "release not complete yet",
        "error",
        "Files that the index, the numbering or an unfinished download announces are not there, and what is "
        "there is sound: the release seems to be still on its way.",
        "Wait until all files are there and run again; if the publisher has no more, it is broken.",
    ),
    Entry(
        "INV046",
        "leftovers of a download",
        "info",
        "Files of an unfinished download lie beside weights that are complete without them.",
        "Remove them once no download is running.",
    ),
    Entry(
        "INV047",
        "prediction layers repeat embedding or head",
        "info",
        "The layers of multi-token prediction hold an embedding or head of their own. Where it is a copy of "
        "the main one, a loader that shares the two saves its bytes.",
        "Check that your stack loads or shares it; one that does neither accepts no predicted token.",
    ),
    Entry(
        "INV048",
        "head without elements",
        "warning",
        "A head is stored that has no elements. It counts as absent.",
        "Remove it from the checkpoint and state tie_word_embeddings as it was trained.",
    ),
    Entry(
        "INV049",
        "head repeats the embedding",
        "info",
        "The config ties head and embedding, and a head with the same bytes is stored as well.",
        "Nothing; it may be left out of the checkpoint.",
    ),
    Entry(
        "INV091",
        "weight missing",
        "error",
        "A layer lacks a weight that the other layers of the same stated kind have or without which the "
        "family computes nothing, or embedding or last norm are missing. A loader fills it with made-up "
        "numbers.",
        "Fetch the shard that should hold it; if the publisher has none, the upload is broken: tell them.",
    ),
    Entry(
        "INV092",
        "no tensors",
        "error",
        "Tensor files are there, their headers can be read, and none of them names a tensor.",
        "Fetch the files again; if they are the same, the upload failed: tell the publisher.",
    ),
    Entry(
        "INV093",
        "more experts per token than experts",
        "error",
        "The config lets a token use more routed experts than there are. All count as active.",
        "Correct the config; engines refuse it or read past the router's scores.",
    ),
    Entry(
        "INV099",
        "weights without a config",
        "warning",
        "Tensor files are there and no config.json or other file that states the model's numbers: names, "
        "dtypes and shapes are known, and nothing of what is computed with them.",
        "Add the config.json that belongs to these weights; every stage but the inventory needs it. If the "
        "release is still on its way, wait for it.",
        undecided="unverified",
    ),
    Entry(
        "INV096",
        "tensor file not read",
        "warning",
        "The source did not hand out a tensor file, tried again and again, or it may not be read. That says "
        "nothing about the file itself; its tensors are not counted.",
        "Run again later; what was read is not asked for twice. If it stays so, look at the source or fetch "
        "the file another way.",
        undecided="unverified",
    ),
    Entry(
        "INV097",
        "pointer in place of the file",
        "error",
        "A Git LFS pointer lies where a tensor file should be: the repository was cloned without its large "
        "files.",
        "Run `git lfs pull` in the folder.",
    ),
    Entry(
        "INV098",
        "small file not read",
        "warning",
        "The source lists an index, tokenizer, configuration or code file and did not hand it out, tried "
        "again and again. What depends on it is not known.",
        "Run again later.",
        undecided="unverified",
    ),
)

"""Findings of the inventory stage."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "INV001", "shard cut short", "error",
        "A tensor file is shorter than its own header promises. Loaders that map it read zeros for the "
        "missing part.",
        "Fetch the file again and compare its size and hash with the publisher's.",
    ),
    Entry(
        "INV002", "shard missing", "error",
        "The index, or the numbering of the files, promises a tensor file that the release does not have.",
        "Fetch the missing file; if the publisher lacks it too, wait until the upload is complete.",
    ),
    Entry(
        "INV003", "weights only as pickle", "error",
        "The release holds weights only in Python's pickle format, which runs code when it is loaded. "
        "Day0 does not "
        "read it.",
        "Convert the weights to safetensors in an isolated environment, or ask the publisher for "
        "safetensors.",
    ),
    Entry(
        "INV004", "tensor only in the index", "error",
        "The index places a tensor in a file whose header does not hold it.",
        "Rebuild the index from the headers, or fetch the shard that really holds the tensor.",
    ),
    Entry(
        "INV005", "index of another build", "warning",
        "The index names none of the tensor files that are there, or none of their tensors. The files' own "
        "headers were used.",
        "Replace the index by one that was written with these files.",
    ),
    Entry(
        "INV006", "shards without an index", "warning",
        "Several tensor files have no usable index beside them. The map was built from their headers; "
        "some loaders "
        "refuse such a release.",
        "Write an index from the headers before you serve the release.",
    ),
    Entry(
        "INV007", "tensor in two shards", "warning",
        "Two files hold a tensor of the same name. Some loaders take the last one, others refuse.",
        "Find out which copy is meant and remove the other.",
    ),
    Entry(
        "INV008", "weights that are not canonical", "info",
        "The release carries further tensor files beside the canonical set, such as a copy in another "
        "format. "
        "They were not counted.",
        "Leave them out when you download.",
    ),
    Entry(
        "INV009", "tensor file unusable", "error",
        "The header of a tensor file breaks a rule of its format, or what stands there is not the file at "
        "all.",
        "Fetch the file again; if it is the same, report it to the publisher.",
    ),
    Entry(
        "INV010", "index unusable", "error",
        "The index is no valid JSON or holds no map of tensors. The files' own headers were used.",
        "Rebuild the index from the headers.",
    ),
    Entry(
        "INV011", "total size differs", "info",
        "The total that the index states is neither that of the tensors nor that of the files. It is not "
        "used.",
        "Nothing; do not size hardware by the index's total.",
    ),
    Entry(
        "INV012", "tensor missing from the index", "warning",
        "A file holds a tensor that the index does not name, or names in another file. Loaders that trust "
        "the index "
        "will not find it.",
        "Rebuild the index from the headers.",
    ),
    Entry(
        "INV013", "path leaves the release", "error",
        "The index, or a link in the place of the only weights, points outside the release or nowhere. It "
        "was not followed.",
        "Do not load this release with tools that follow such paths; report it to the publisher.",
    ),
    Entry(
        "INV014", "no weights", "info",
        "Only a config was given. Structure and memory follow from it; nothing about the tensors is known.",
        "Run again once the weights are published.",
    ),
    Entry(
        "INV015", "tensors of unknown role", "warning",
        "No role was found for some tensors. They are counted and listed, and counted as active.",
        "Look at the listed names; they show what is new in this architecture.",
    ),
    Entry(
        "INV016", "custom code", "info",
        "The config asks for classes of the repository's own code. None of it was run.",
        "Nothing for Day0, which never runs it: where transformers knows the model type it builds the model "
        "without; read the code before you let a loader run it.",
    ),
    Entry(
        "INV017", "dtype differs from the config", "warning",
        "The dtype that the config states is not the one in which most plain weights are stored.",
        "Name the dtype when you load the release instead of trusting the config.",
    ),
    Entry(
        "INV018", "tied by config, stored apart", "warning",
        "The config says that embedding and head share one matrix, yet a head of its own is stored. A "
        "loader that ties "
        "them ignores the stored head.",
        "Compare the two tensors; if they differ, set tie_word_embeddings to false.",
    ),
    Entry(
        "INV019", "head missing", "error",
        "The config says that the head is a matrix of its own, yet none is stored.",
        "Set tie_word_embeddings to true if that is what the model was trained with; otherwise the head "
        "is lost.",
    ),
    Entry(
        "INV020", "layers missing", "error",
        "The config states more layers than the tensors show.",
        "Fetch the missing shards; without them a loader fills these layers with random numbers.",
    ),
    Entry(
        "INV103", "more layers than stated", "error",
        "The tensors show more layers than the config states. A loader leaves the further ones out, and what "
        "it builds is another model.",
        "Correct the number of layers in the config, or fetch the config that belongs to these weights.",
    ),
    Entry(
        "INV104", "feed-forward of the other kind", "error",
        "The config makes some layers dense where experts are stored, or the other way round. A loader fills "
        "these layers with random numbers.",
        "Correct what the config says of dense and expert layers (first_k_dense_replace, mlp_only_layers, "
        "decoder_sparse_step).",
    ),
    Entry(
        "INV105", "parameters not known", "warning",
        "Only a config is there, and no model can be built of it: parameters, bytes and operators stay "
        "unknown.",
        "Wait for the weights, or install the transformers version that knows the model.",
        undecided="unverified",
    ),
    Entry(
        "INV021", "experts missing", "error",
        "Some layers hold fewer routed experts than the config states, or lack some within the range.",
        "Fetch the missing shards.",
    ),
    Entry(
        "INV022", "quantisation contradicts itself", "warning",
        "What the config declares about quantisation and what the tensors show do not agree.",
        "Find out from the publisher which one holds before you trust a loader's choice.",
    ),
    Entry(
        "INV023", "scale missing", "error",
        "A low-precision weight has no scale beside it, or a scale has no weight.",
        "Fetch the missing tensors; without its scale a weight is off by orders of magnitude.",
    ),
    Entry(
        "INV024", "state not computable", "warning",
        "The config does not give what is needed to compute the bytes that some layers keep per token or "
        "sequence.",
        "State these numbers by hand in plans; they count as 0 here.",
        undecided="unverified",
    ),
    Entry(
        "INV025", "multi-token prediction contradicts itself", "info",
        "The config declares prediction layers that are not stored, or such layers are stored and not "
        "declared.",
        "Do not plan with speculative decoding by these layers before it is clear.",
    ),
    Entry(
        "INV026", "experts per token unknown", "warning",
        "The release has routed experts but the config does not say how many a token uses. All count as "
        "active.",
        "Look it up in the model card.",
        undecided="unverified",
    ),
    Entry(
        "INV027", "shapes contradict the config", "warning",
        "A size that the config states is not the one that the tensors have.",
        "Trust the tensors; correct the config before you load the release.",
    ),
    Entry(
        "INV028", "irregular layers", "info",
        "Some layers lack a tensor that most layers of their kind have.",
        "Check that this is meant; a shared cache or a pruned layer is, a lost tensor is not.",
    ),
    Entry(
        "INV029", "other weights remark", "warning",
        "Reading the tensor files brought up something that has no code of its own.",
        "Read the message.",
    ),
    Entry(
        "INV030", "bytes after the last tensor", "error",
        "A tensor file is longer than its header accounts for. The safetensors library refuses it.",
        "Fetch the file again; if it is the same, report it to the publisher.",
    ),
    Entry(
        "INV031", "quantisation dialect unknown", "warning",
        "The config declares a quantisation in a dialect that Day0 does not know.",
        "Check that your stack knows it; the counts follow the tensors.",
        undecided="unverified",
    ),
    Entry(
        "INV032", "file of the release left out", "info",
        "A file or folder of the release could not be listed or followed.",
        "Check links and permissions.",
    ),
    Entry(
        "INV033", "config states what cannot be", "warning",
        "A count, a number or a section of the config has a value that no model can have. It was ignored. "
        "An error where the tensors prove it wrong.",
        "Correct the config, or fetch it again, before you load the release.",
    ),
    Entry(
        "INV034", "model type not stated", "warning",
        "The config does not name the architecture by a model_type. Loaders that choose their class by it "
        "refuse the release or guess.",
        "Ask the publisher for the config that belongs to these weights.",
    ),
    Entry(
        "INV035", "text file left out", "info",
        "A config, tokenizer or code file of the release is too large, one too many, or could not be read.",
        "Look at the file by hand; what depends on it is not known here.",
    ),
)  # fmt: skip

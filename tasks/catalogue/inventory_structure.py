"""Findings of the inventory stage about structure, tokenizer, code and trust."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "INV060", "no tokenizer", "warning",
        "The release has weights of a language model and no file of a tokenizer.",
        "Find out which tokenizer the model was trained with before you feed it text.",
    ),
    Entry(
        "INV061", "tokens beyond the embedding", "error",
        "The tokenizer gives out ids for which the embedding, the head or the config has no row.",
        "Do not serve the release with this tokenizer; fetch the one that belongs to the weights.",
    ),
    Entry(
        "INV062", "special tokens disagree", "warning",
        "Config, generation config and tokenizer do not state the same ids for beginning, end or padding.",
        "Name the ids yourself when you generate; an end that is missing makes the model run on.",
    ),
    Entry(
        "INV063", "special token out of range", "error",
        "A special token is stated with an id that the vocabulary does not have.",
        "Correct the id; a loader that uses it reads past the embedding.",
    ),
    Entry(
        "INV064", "no chat template", "info",
        "The release calls itself a chat or instruction model and has no chat template.",
        "Ask the publisher for the prompt format; servers refuse chat requests without one.",
    ),
    Entry(
        "INV065", "chat template unusable", "warning",
        "A chat template cannot be parsed.",
        "Give the server a corrected template.",
    ),
    Entry(
        "INV066", "tokenizer file unusable", "error",
        "A file of the tokenizer is damaged, or is not what its name says.",
        "Fetch the file again; if it is the same, report it to the publisher.",
    ),
    Entry(
        "INV067", "code does more than compute", "warning",
        "The repository's own code runs commands, talks to the network, unpickles, or runs text as code. It "
        "was read as text and not run.",
        "Read these lines before you let a loader run the code; Day0 never does.",
    ),
    Entry(
        "INV068", "code asks for kernels", "info",
        "The repository's own code, or its config, asks for kernels that a target has to provide.",
        "Check each against the target's registry.",
    ),
    Entry(
        "INV069", "code incomplete", "warning",
        "Code that the config or another file of the repository asks for is not there or cannot be parsed.",
        "Fetch the missing files; loading the model with its own code fails without them.",
    ),
    Entry(
        "INV070", "code of another repository", "warning",
        "The config asks for code or a kernel of another repository, which is not pinned with this one. An "
        "error where loaders run it without being asked (CVE-2026-4372).",
        "Remove the key from the config, or read that repository at a pinned revision first.",
    ),
    Entry(
        "INV071", "stored in too little precision", "warning",
        "A tensor that decides by small differences is stored in less precision than it needs.",
        "Ask the publisher for the tensor in F32; casting it up does not bring the digits back.",
    ),
    Entry(
        "INV072", "must stay in F32", "info",
        "Some tensors are stored in F32 beside weights of lower precision because they decide by small "
        "differences.",
        "Keep them in F32 at run time; do not cast the whole model to one dtype.",
    ),
    Entry(
        "INV073", "dtype not stated", "info",
        "The config does not state the dtype of the weights, or states it twice and differently. "
        "Some loaders fall back to F16 or F32.",
        "Name the dtype when you load the release.",
    ),
    Entry(
        "INV074", "rotary buffer of odd size", "warning",
        "A stored table of rotary frequencies does not have half as many entries as the rotated part of a "
        "head has elements.",
        "Compute the table from the config instead of loading it.",
    ),
    Entry(
        "INV075", "model type unknown to transformers", "warning",
        "No release of transformers that was checked can build the model without code of the repository.",
        "Install a transformers that knows the type, once there is one. Until then inventory, inventory diff "
        "and plan work from headers and config; stages that need the model's structure stay blocked, since "
        "Day0 runs no code of a repository.",
    ),
    Entry(
        "INV076", "pickle asks for code", "warning",
        "Loading a pickle of the release would import more than plain weights need. An error where it would "
        "run commands or text as code.",
        "Do not load it; convert first, in an isolated environment, or use safetensors.",
    ),
    Entry(
        "INV077", "pickle not listed", "warning",
        "A pickle of the release could not be listed to its end. It was not loaded.",
        "Treat it as if it asked for code.",
    ),
    Entry(
        "INV078", "licence not stated", "info",
        "Neither the model card nor a file of the release states a licence.",
        "Ask the publisher before you use the weights.",
    ),
    Entry(
        "INV079", "biases contradict the config", "warning",
        "Attention projections store a bias that the config denies, or lack one that it states.",
        "Trust the tensors; a loader that follows the config drops the bias or fills it with random numbers.",
    ),
    Entry(
        "INV095", "config says nothing", "warning",
        "The config is there and names neither a model type nor an architecture, and no hidden size or "
        "number of layers. Nothing can be told of the model beyond what tensors show.",
        "Give the model's own config.json.",
        undecided="unverified",
    ),
)  # fmt: skip

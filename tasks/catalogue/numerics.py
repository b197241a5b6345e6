"""Findings of the numerics stage."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        code="NUM001",
        title="Node wrong by itself",
        severity="error",
        meaning="Given the reference's own input, the node's output is further from the reference than the "
        "rounding of the target's precision explains; the measure and its tolerance are in the message.",
        remedy="Look at this node's operators in the coverage section first, then have the owner of the "
        "kernel at fault reproduce it with the command that stands with the finding.",
    ),
    Entry(
        code="NUM002",
        title="Target fails at a node",
        severity="error",
        meaning="The target gave no output for the node: it raised, died, hung or ran out of memory. Nodes "
        "after it were still compared on the reference's input.",
        remedy="Read the log lines in the evidence; the minimal run shows the same failure with fewer "
        "layers.",
    ),
    Entry(
        code="NUM003",
        title="Output not finite",
        severity="error",
        meaning="The node's output holds NaN or infinity where the reference's is finite.",
        remedy="Where the reference in the same precision overflows too, run the node in a wider dtype; else "
        "treat it as a wrong kernel.",
    ),
    Entry(
        code="NUM004",
        title="Output of another shape or dtype",
        severity="error",
        meaning="The node's output has other parts, another shape or another dtype than the reference's.",
        remedy="Have the owner of the stack correct the node's export or kernel; nothing after it can be "
        "trusted.",
    ),
    Entry(
        code="NUM005",
        title="Error grows although no node is at fault",
        severity="warning",
        meaning="Every node is right on the reference's input, but on the target's own stream the error "
        "grows faster than that of the reference in the same precision.",
        remedy="Look for a bias that is too small for one node: a coarser accumulation, a faster "
        "approximation.",
    ),
    Entry(
        code="NUM006",
        title="Weights not finite",
        severity="error",
        meaning="Weights of the release hold NaN or infinity, so neither reference nor target can be right "
        "from there on.",
        remedy="Fetch the shard again; if its hash is right, report it to the publisher of the release.",
    ),
    Entry(
        code="NUM007",
        title="Other tokens chosen",
        severity="warning",
        meaning="The target's next token differs from the reference's at more positions than chance explains "
        "although the reference's margin there exceeds the rounding of the target's precision.",
        remedy="Take the first node that is wrong by itself, or where none is, the growth of the error, as "
        "the cause.",
    ),
    Entry(
        code="NUM008",
        title="Nodes not compared",
        severity="warning",
        meaning="Nothing can be said of these nodes, for the reason given.",
        remedy="Remove the reason given and run the comparison again.",
        undecided="unverified",
    ),
    Entry(
        code="NUM009",
        title="Target does not run nodes",
        severity="warning",
        meaning="The target does not claim the capability `fragment`, so its nodes cannot be compared one by "
        "one.",
        remedy="Compare by a target that runs nodes on the same device, or wait for the stack to claim it.",
        undecided="unverified",
    ),
    Entry(
        code="NUM010",
        title="Nodes off by what they received",
        severity="info",
        meaning="These nodes are right on the reference's input and off on the target's own stream: they "
        "pass on the error of a node before them.",
        remedy="Correct the first faulty node; these need nothing of their own.",
    ),
    Entry(
        code="NUM011",
        title="Tokens routed otherwise",
        severity="info",
        meaning="Some tokens of these nodes are far off while the typical token is right, in the number that "
        "near-ties between experts explain.",
        remedy="Nothing; the choice between nearly equal experts is decided by rounding.",
    ),
    Entry(
        code="NUM012",
        title="No tokenizer",
        severity="info",
        meaning="The release has no tokenizer.json, or one that knows hardly anything of the shipped texts; "
        "token ids drawn by a fixed seed were compared and no prompt was continued.",
        remedy="Add the model's own tokenizer.json to the release to compare it on text.",
    ),
    Entry(
        code="NUM013",
        title="Tokenizer does not fit",
        severity="error",
        meaning="tokenizer.json cannot be read, fails on the shipped texts, or gives token ids beyond the "
        "model's vocabulary; token ids drawn by a fixed seed were compared.",
        remedy="Take tokenizer and config.json from the same revision of the release.",
    ),
    Entry(
        code="NUM014",
        title="Precision cannot be compared",
        severity="warning",
        meaning="The reference cannot compute in the target's precision on the CPU, and either its rounding "
        "is not modelled (it is for fp8_e4m3, fp8_e5m2, int8 and int4) or the stack does not say that it "
        "computes in it.",
        remedy="Compare the target in bf16, fp16, fp32 or fp64; have the stack name the precision among its "
        "dtypes for weights where it quantises the bf16 that it is sent.",
        undecided="unverified",
    ),
    Entry(
        code="NUM015",
        title="Comparison ended early",
        severity="error",
        meaning="The reference itself could not go on: weights are missing or unreadable, or its own code "
        "failed. Nodes before it were compared.",
        remedy="Correct what the message names; finished nodes are kept.",
        undecided="blocked",
    ),
    Entry(
        code="NUM016",
        title="Reference output all zero",
        severity="warning",
        meaning="The reference's output of these nodes is zero throughout, because their weights are or "
        "because what they received is lost in them, so a target that scales it wrongly gives them too.",
        remedy="Check the weights named by the nodes; compare again on a release in which they are not zero.",
        undecided="unverified",
    ),
    Entry(
        code="NUM017",
        title="Tokens routed otherwise without a near-tie",
        severity="error",
        meaning="On the reference's own input the target's router sends tokens to other experts although the "
        "reference's scores of both are further apart than the rounding of the target's precision explains.",
        remedy="Look at the router's product, its bias and its choice of groups on the target: the dtype of "
        "the scores, the order of operations, how ties are broken.",
    ),
    Entry(
        code="NUM018",
        title="Near to overflow",
        severity="warning",
        meaning="The node's largest magnitude in the reference comes close to the largest number of the "
        "target's dtype; another prompt may overflow.",
        remedy="Run this node in bf16 or fp32, or scale its weights.",
    ),
    Entry(
        code="NUM019",
        title="Prompt did not run",
        severity="info",
        meaning="One of the shipped prompts did not run, for the reason given; what only it can show was not "
        "looked at.",
        remedy="Where the reason is its cost, run it with --prompts all.",
    ),
    Entry(
        code="NUM020",
        title="Reference itself wrong",
        severity="error",
        meaning="The reference does not give what stock transformers gives for the same files, finds plain "
        "text less likely than a model that was read rightly can, or does not say what the publisher's "
        "samples say. Weights are then read wrongly, and a target that reads them in the same way is wrong "
        "with it.",
        remedy="Where only samples failed, look at the file of samples first: it may be wrong. Else report "
        "it with the message: the mapping of names, a block scale or a conversion is at fault, and no figure "
        "of the comparison means anything until it is corrected.",
    ),
    Entry(
        code="NUM021",
        title="Reference not proved right",
        severity="warning",
        meaning="Neither stock transformers, nor the likelihood of text, nor a published sample could show "
        "that the reference is right; the target may agree with a reference that is wrong.",
        remedy="Give more memory, so that stock transformers can load the release, or the publisher's sample "
        "outputs with --samples.",
        undecided="unverified",
    ),
    Entry(
        code="NUM027",
        title="Weights changed since the capture",
        severity="error",
        meaning="The node's weights are not those that the reference bundle was captured from, so it cannot "
        "be compared; nodes before and after it were.",
        remedy="Capture the reference again from this release, or fetch the weights that it was captured "
        "from.",
    ),
    Entry(
        code="NUM026",
        title="No tokenizer for a server",
        severity="warning",
        meaning="A server is asked in words, and the release has no tokenizer.json to make tokens of them.",
        remedy="Add tokenizer.json to the release.",
        undecided="unverified",
    ),
    Entry(
        code="NUM022",
        title="Endpoint says otherwise",
        severity="warning",
        meaning="The served model chooses another token than the reference although the reference's margin "
        "exceeds the rounding of the release's precision: greedily, or as the likeliest token of a prompt.",
        remedy="Look for what the server does beside the model: quantisation of weights or cache, sampling "
        "defaults, another revision; then compare the stack below it node by node.",
    ),
    Entry(
        code="NUM023",
        title="Endpoint cannot be asked",
        severity="warning",
        meaning="The server does not offer what would show how far its output is from the reference's, or "
        "failed at it; the reason is in the message.",
        remedy="Compare on a server that gives prompt log-probabilities, or start this one with them.",
        undecided="unverified",
    ),
    Entry(
        code="NUM024",
        title="Endpoint tokenises otherwise",
        severity="error",
        meaning="The server makes other tokens of a prompt than the release's tokenizer, so the served model "
        "reads another text than was sent.",
        remedy="Serve the tokenizer of the same revision; look for a first token that is added twice or not "
        "at all.",
    ),
    Entry(
        code="NUM025",
        title="Log-probabilities one position too early",
        severity="info",
        meaning="What the server lists for a token of the prompt is the distribution of the token after it, "
        "as its own greedy choices show. It was read so.",
        remedy="Report it to the server's owner: perplexities that others compute from it are wrong.",
    ),
    Entry(
        code="NUM030",
        title="Step of training wrong",
        severity="error",
        meaning="In one step of loss, backward and optimiser on the first layers of each kind, the losses, a "
        "node's gradients or what the step added to its weights are further from the reference's than the "
        "rounding of the target's precision explains; a gradient is missing, or a weight moved that has "
        "none. Gradients flow backward, so the last node in order that is off is named.",
        remedy="Where forward passes, look at the backward kernels of this node's operators; where only "
        "updates are off, at the optimiser.",
    ),
    Entry(
        code="NUM031",
        title="Step of training not compared",
        severity="warning",
        meaning="The step of training that was asked for was not made or not compared, for the reason given.",
        remedy="Give more memory where that is the reason; else read what target or reference raised.",
        undecided="unverified",
    ),
    Entry(
        code="NUM032",
        title="Noise is modelled",
        severity="info",
        meaning="The reference cannot compute in the target's precision on the CPU. The noise is that of the "
        "reference with matrices and the inputs of their products rounded to it and all else in the "
        "precision in which activations are carried. A stack whose scales are shared by more numbers has "
        "more noise than this, one whose scales are shared by fewer has less.",
        remedy="Nothing; read the noise text for what shares a scale, and compare in bf16 as well to tell "
        "faults of the stack from those of its quantisation.",
    ),
    Entry(
        code="NUM033",
        title="Image features off",
        severity="warning",
        meaning="What the vision tower and the projector make of an image on the target's own stream is "
        "further from the reference's than the rounding of the target's precision adds up to, so the text "
        "takes in another picture.",
        remedy="Take the first node of the tower that is wrong by itself as the cause; where none is, look "
        "for a bias that is too small for one node.",
    ),
    Entry(
        code="NUM034",
        title="Target differs from run to run",
        severity="warning",
        meaning="A node that is wrong by itself gave two results on the same input that are further apart "
        "than the rounding of the target's precision explains, so its fault comes and goes.",
        remedy="Look for a race, a read of memory that was never written, or a reduction whose order is not "
        "fixed; run the comparison again with --fresh to see whether the node stays the same.",
    ),
    Entry(
        code="NUM035",
        title="Weight without its scale",
        severity="error",
        meaning="A weight is stored in a format that needs a scale and the checkpoint has none for it, while "
        "it has some for others of that format or says that it is quantised. Whoever reads it takes its "
        "numbers as they stand, the reference like the target, so that no comparison can show the error: the "
        "node's verdict says nothing of it.",
        remedy="Fetch the missing tensor; day0 inventory names it (INV023).",
    ),
    Entry(
        code="NUM040",
        title="Task answered worse",
        severity="warning",
        meaning="The target answers fewer of the shipped questions rightly than the reference does, and the "
        "95 % interval of the difference lies below zero.",
        remedy="Take the first node that is wrong by itself as the cause; where none is, the precision or "
        "quantisation of the target costs this much.",
    ),
)

"""What a run holds in the memory of one GPU: pure functions of the model's shape and the config (docs/sizing.md).

They follow what trains: TRL's GRPOTrainer, bfloat16 by autocast, LoRA's own weights in float32, torch's AdamW, TRL's
fused head, which never holds the logits of more than 4,096 tokens and 32,768 words of the vocabulary at a time.
Bytes everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradstarve.launching.architecture import FAMILIES, Linear, Shape, lora_modules, lora_parameters, parameters
from gradstarve.launching.question_sizes import Prompts
from gradstarve.runs.config import RunConfig

ELEMENT = {"float32": 4, "bfloat16": 2}
# TRL 1.16, kernels/chunked_logprob.py and trainer/utils.py.
HEAD_TOKENS, HEAD_WORDS = 4096, 32768
# transformers' gated-delta layers work in chunks of so many tokens.
CHUNK = 64
# The CUDA context, cuBLAS and kernels; and what an allocator cannot use between its blocks.
CONTEXT = 1_000_000_000
USABLE = 0.9
# Requests that vLLM serves at a time, by default.
VLLM_SEQUENCES = 256


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU, part by part, and the rows of one pass.

    `share` is vLLM's, of the whole of a GPU; `engine` is the least that it has to hold.
    """

    weights: int
    reference: int
    lora: int
    gradients: int
    optimizer: int
    optimizer_step: int
    activations: int
    recomputed: int
    head: int
    cache: int
    sampling: int
    evaluation_cache: int
    evaluation: int
    share: float
    share_sleeps: bool
    engine: int
    rows: int
    row_tokens: int
    trained: int
    wrapped: int

    @property
    def kept(self) -> int:
        """There throughout: weights, reference, LoRA's weights, AdamW's state, context."""
        return self.weights + self.reference + self.lora + self.optimizer + CONTEXT

    @property
    def training(self) -> int:
        """The most that a step's passes and its optimizer step need, whichever is more."""
        passes = self.activations + self.recomputed + self.head if self.trained else 0
        return self.kept + self.gradients + max(passes, self.optimizer_step)

    def needed(self, gpu_bytes: int) -> int:
        """The peak on a GPU of that size, vLLM's share of it included."""
        engine = round(self.share * gpu_bytes)
        training = self.training + (0 if self.share_sleeps else engine) if self.trained else 0
        sampling = self.kept + self.cache + self.sampling + engine if self.trained else 0
        return max(training, sampling, self.kept + self.evaluation_cache + self.evaluation)

    def engine_fits(self, gpu_bytes: int) -> bool:
        """Whether vLLM's share of such a GPU holds its copy of the weights and one row."""
        return not self.share or self.share * gpu_bytes >= self.engine

    def fits(self, gpu_bytes: int) -> bool:
        return self.needed(gpu_bytes) <= USABLE * gpu_bytes and self.engine_fits(gpu_bytes)


def memory_of(config: RunConfig, shape: Shape, prompts: Prompts) -> Memory:
    """Raises UnknownShapeError where LoRA's targets reach what is not counted."""
    model, element = config.model, ELEMENT[config.model.dtype]
    trains = config.advantage.trains
    total = parameters(shape)
    wrapped = lora_modules(shape, model.lora) if trains and model.lora is not None else ()
    adapter = lora_parameters(wrapped, model.lora.rank) if model.lora is not None else 0
    trained = (adapter if model.lora is not None else total) if trains else 0
    trained_element = 4 if model.lora is not None else element

    row = prompts.longest + config.completion_limit
    rows = config.completions_per_pass or config.completions_per_step
    replayed = replayed_rows(config)
    kept, recomputed = activations(
        shape,
        rows=rows + replayed,
        row=row,
        scored=(rows + replayed) * config.completion_limit,
        element=element,
        wrapped=wrapped if model.lora is not None else None,
        rank=model.lora.rank if model.lora is not None else 0,
        checkpointing=model.gradient_checkpointing,
    )
    limit = config.evaluation.completion_limit or config.completion_limit
    asked = prompts.evaluated * samples_of(config) if prompts.evaluated is not None else config.evaluation.batch_size
    batch = min(config.evaluation.batch_size, asked)
    by_transformers = config.evaluation.engine == "hf" or (trains and 0 < config.eval_every < config.steps)
    step_rows = config.completions_per_step if config.rollout.engine == "hf" else 0
    vllm = config.rollout.vllm if config.rollout.engine == "vllm_colocate" else None
    second_model = model.lora is None and (
        config.loss.kl > 0
        or (config.advantage.replay is not None and config.advantage.replay.loss == "contrastive_pair")
    )
    return Memory(
        weights=total * element,
        reference=total * element if trains and second_model else 0,
        # With bfloat16 weights a pass also holds a bfloat16 copy of LoRA's.
        lora=adapter * (4 + (2 if element == 2 else 0)) if trains else 0,
        gradients=trained * trained_element,
        optimizer=2 * trained * trained_element,
        optimizer_step=trained * trained_element,
        activations=kept if trains else 0,
        recomputed=recomputed if trains else 0,
        head=_backward_workspace(shape, rows + replayed, row, config.completion_limit, element, model.lora is None)
        if trains
        else 0,
        cache=cache(shape, step_rows, row, element),
        sampling=_decoding_workspace(shape, step_rows, prompts.longest, element, config.rollout.top_p < 1),
        evaluation_cache=cache(shape, batch, prompts.asked_longest + limit, element) if by_transformers else 0,
        evaluation=_decoding_workspace(shape, batch, prompts.asked_longest, element, False) if by_transformers else 0,
        share=vllm.memory_share if vllm is not None else 0.0,
        share_sleeps=vllm is not None and vllm.sleep,
        engine=total * element + cache(shape, 1, row, element) + CONTEXT if vllm is not None else 0,
        rows=rows + replayed,
        row_tokens=row,
        trained=trained,
        wrapped=len(wrapped),
    )


def replayed_rows(config: RunConfig) -> int:
    """Completions that a step's first pass replays beside its own, their graph held at the same time."""
    replay = config.advantage.replay
    if replay is None:
        return 0
    return replay.rows_per_step * (2 if replay.loss == "contrastive_pair" else 1)


def samples_of(config: RunConfig) -> int:
    return 1 if config.evaluation.greedy else config.evaluation.samples


def activations(
    shape: Shape,
    rows: int,
    row: int,
    scored: int,
    element: int,
    wrapped: Sequence[Linear] | None,
    rank: int,
    checkpointing: bool,
) -> tuple[int, int]:
    """What autograd keeps of one forward pass over `rows` x `row` tokens, and what checkpointing recomputes at a time.

    `scored` tokens go through the head. `wrapped` are LoRA's modules; None where all weights are trained. Without
    checkpointing nothing is recomputed: the second number is 0.
    """
    tokens = rows * row
    names = None if wrapped is None else frozenset(module.name.rsplit(".", 1)[-1] for module in wrapped)
    by_kind = {kind: saved_per_token(shape, kind, row, element, names) for kind in set(shape.layers)}
    ranks = element * rank * len(wrapped or ())
    norm = 4 * shape.hidden + (_normalised_element(shape, element) * shape.hidden if names is None else 0)
    outside = tokens * norm + scored * element * shape.hidden
    layers = sum(by_kind[kind] for kind in shape.layers) + ranks
    if not checkpointing:
        return round(outside + tokens * layers), 0
    inputs = tokens * len(shape.layers) * element * shape.hidden
    one_layer = max(by_kind.values()) + ranks / len(shape.layers)
    return round(outside + inputs), round(tokens * one_layer)


def saved_per_token(shape: Shape, kind: str, row: int, element: int, wrapped: frozenset[str] | None) -> float:
    """Bytes that autograd keeps of one token in one layer, LoRA's inner rank left out. `wrapped`: names in the layer.

    Attention is torch's scaled_dot_product_attention with a mask: nothing quadratic but the mask itself. The
    gated-delta layers are transformers' own torch code, which keeps more than flash-linear-attention's kernels do;
    their numbers were fitted to what was measured.
    """
    full = wrapped is None
    casts = not full and element == 2
    hidden = shape.hidden

    def inputs(names: tuple[str, ...], width: int) -> int:
        """What modules that read one tensor keep of it: LoRA's float32 weights make each keep a copy of its own."""
        count = len(names) if wrapped is None else sum(name in wrapped for name in names)
        return element * width * (count if casts else min(count, 1))

    # Two norms in float32, the input of each and the reciprocal; their normalised values where their weight is trained.
    saved: float = 2 * 4 * hidden + 8 + (2 * _normalised_element(shape, element) * hidden if full else 0)
    saved += 3 * element * shape.intermediate
    saved += inputs(("gate_proj", "up_proj"), hidden) + inputs(("down_proj",), shape.intermediate)
    if kind == "linear":
        return saved + _gated_delta_per_token(shape, element, full, inputs)
    family = FAMILIES[shape.family]
    queries, pairs = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    # Queries, keys and values (repeated for each query head), the output; log-sums; the mask.
    saved += inputs(("q_proj", "k_proj", "v_proj"), hidden) + 4 * element * queries + 4 * shape.heads + element * row
    if family.gated_attention:
        saved += 2 * element * queries + inputs(("o_proj",), queries)
    elif casts:
        saved += inputs(("o_proj",), queries)
    if family.query_key_norm:
        with_gate = queries if family.gated_attention and element == 4 else 0
        saved += 4 * (queries + pairs + with_gate) + 4 * (shape.heads + shape.key_value_heads)
        saved += _normalised_element(shape, element) * (queries + pairs) if full else 0
    return saved


def _gated_delta_per_token(
    shape: Shape, element: int, full: bool, inputs: Callable[[tuple[str, ...], int], int]
) -> float:
    linear = shape.linear_attention
    assert linear is not None
    keys, values = linear.value_heads * linear.key_dim, linear.values
    chunks, state = CHUNK * linear.value_heads, linear.value_heads * linear.key_dim * linear.value_dim / CHUNK
    saved: float = inputs(("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"), shape.hidden)
    saved += inputs(("out_proj",), values) + 2 * element * linear.convolved + (element * values if full else 0)
    if element == 2:
        return saved + 37.5 * keys + 26 * values + 14.6 * chunks + 8 * state
    return saved + 8 * linear.keys + 41 * keys + 28 * values + 21 * chunks + 6 * state


def _normalised_element(shape: Shape, element: int) -> int:
    """Qwen3.5 multiplies with a norm's weight in float32, the others in the hidden states' type."""
    return 4 if FAMILIES[shape.family].gated_attention else element


def cache(shape: Shape, rows: int, tokens: int, element: int) -> int:
    """Keys and values of `rows` x `tokens`, and one layer's copy while they grow; the state of gated-delta layers."""
    pair = 2 * shape.key_value_heads * shape.head_dim * element
    growing = shape.full_layers + min(shape.full_layers, 1)
    return rows * (tokens * pair * growing + state_bytes(shape, element))


def state_bytes(shape: Shape, element: int) -> int:
    """A row's state in the gated-delta layers: float32 matrices, and the convolution's last inputs."""
    linear = shape.linear_attention
    if linear is None:
        return 0
    matrices = 4 * linear.value_heads * linear.key_dim * linear.value_dim
    return shape.linear_layers * (matrices + element * linear.convolved * linear.kernel)


def _backward_workspace(shape: Shape, rows: int, row: int, limit: int, element: int, head_trained: bool) -> int:
    """What the backward pass needs beside what was kept: the head's tile and gradients, or a layer's, the larger."""
    scored = rows * limit
    tile = min(scored, HEAD_TOKENS) * HEAD_WORDS * element
    head = tile + scored * shape.hidden * (4 + element) + (4 * shape.vocabulary * shape.hidden if head_trained else 0)
    layer = 3 * element * shape.intermediate * rows * row
    return max(head, layer)


def _decoding_workspace(shape: Shape, rows: int, prompt: int, element: int, sorts: bool) -> int:
    """The prompts' widest layer, or the logits of the rows' last tokens with what sampling makes of them."""
    widest = element * (3 * shape.intermediate + 4 * shape.hidden)
    if shape.linear_attention is not None:
        linear = shape.linear_attention
        keys, chunks = linear.value_heads * linear.key_dim, CHUNK * linear.value_heads
        widest = max(widest, 4 * (4 * keys + 4 * linear.values + 4 * chunks))
    logits = shape.vocabulary * (element + 12 + (16 if sorts else 0))
    return rows * max(prompt * widest, logits)

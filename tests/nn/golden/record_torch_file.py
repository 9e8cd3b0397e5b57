#!/usr/bin/env python3
"""Writes torch_file.safetensors as a PyTorch user would: the weights of an LSTM, an encoder layer
and a language model, and what PyTorch computes with them.

    pip install torch safetensors && python3 record_torch_file.py torch_file.safetensors

The weights and inputs are drawn from seed 1, in float32 on the CPU; results are exact to f32.
"""

import sys

import torch
from safetensors.torch import save_file
from torch import nn


class Model(nn.Module):
    """A language model of PyTorch's own layers, with the norms first and a causal mask."""

    def __init__(self, vocabulary=11, context=16, width=16):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(
            width, 2, 24, dropout=0.0, batch_first=True, norm_first=True,
            activation=lambda x: nn.functional.gelu(x, approximate="tanh"))
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).layers
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.embedding(tokens) + self.position.weight[:length]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    lstm = nn.LSTM(5, 6, num_layers=2, bidirectional=True, batch_first=True)
    encoder = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True).eval()
    model = Model().eval()
    for p in model.parameters():  # norms and biases that are not 1 and 0
        p.data += 0.1 * torch.randn_like(p)
    sequences, x = torch.randn(3, 7, 5), torch.randn(2, 9, 16)
    tokens = torch.randint(11, (2, 16))
    with torch.no_grad():
        y, (h, c) = lstm(sequences)
        tensors = {
            "lstm_x": sequences, "lstm_y": y, "lstm_h": h, "lstm_c": c,
            "encoder_x": x, "encoder_y": encoder(x),
            "model_tokens": tokens, "model_logits": model(tokens),
        }
    for prefix, module in (("lstm", lstm), ("encoder", encoder), ("model", model)):
        tensors.update({f"{prefix}.{name}": value for name, value in module.state_dict().items()})
    tensors = {name: value.contiguous() for name, value in tensors.items()}
    save_file(tensors, sys.argv[1], metadata={"format": "pt", "torch": torch.__version__})


if __name__ == "__main__":
    main()

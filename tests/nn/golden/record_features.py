"""Records log-mel features computed by librosa, for features_golden_test.cpp.

    python3 -m venv venv && venv/bin/pip install librosa==0.11.0
    venv/bin/python record_features.py > features.txt

A frame of librosa's is as long as the transform, with the window in its middle; ours is as long as
the window. Zeros before the signal bring the two together.
"""
import librosa
import numpy as np


def signal(count):
    i = np.arange(count, dtype=np.int64)
    x = (
        0.3 * np.sin(0.05 * i)
        + 0.2 * np.sin(0.00002 * i * i)
        + 0.1 * ((i * 7919 % 1000) / 500.0 - 1)
    )
    return x.astype(np.float32).astype(np.float64)


def log_mel(x, rate, window, hop, mels, low, high, htk, shape, preemphasis):
    x = np.concatenate([x[:1], x[1:] - preemphasis * x[:-1]])
    window, hop = round(window * rate), round(hop * rate)
    fft = 1 << (window - 1).bit_length()
    before = (fft - window) // 2
    x = np.concatenate([np.zeros(before), x, np.zeros(fft - window - before)])
    spectrum = librosa.stft(
        x, n_fft=fft, hop_length=hop, win_length=window, window=shape, center=False,
        dtype=np.complex128,
    )
    filters = librosa.filters.mel(
        sr=rate, n_fft=fft, n_mels=mels, fmin=low, fmax=high, htk=htk, norm=None, dtype=np.float64
    )
    return np.log(filters @ np.abs(spectrum) ** 2 + 1e-9).T


cases = [
    (4000, 16000, 0.025, 0.010, 80, 0, 8000, True, "hann", 0.97),
    (4001, 16000, 0.020, 0.010, 40, 20, 7600, False, "hann", 0.0),
    (2500, 8000, 0.025, 0.010, 32, 60, 3800, True, "hamming", 0.97),
]
for case in cases:
    count, *options = case
    frames = log_mel(signal(count), *options)
    print("case", *case, *frames.shape)
    for row in frames:
        print(" ".join(f"{v:.9g}" for v in row))

"""Reads the text in images by tritonclient: python client.py HOST:PORT FILE..."""

import sys
from pathlib import Path

import numpy as np
import tritonclient.http as httpclient

address, *files = sys.argv[1:]
with httpclient.InferenceServerClient(address) as client:
    for file in files:
        tensor = httpclient.InferInput("IMAGE", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([Path(file).read_bytes()], object))
        answer = client.infer("ocr", [tensor])
        for text, box in zip(answer.as_numpy("TEXTS"), answer.as_numpy("BOXES"), strict=True):
            print(file, box.astype(int).tolist(), text.decode())

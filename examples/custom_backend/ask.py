"""Asks the served model: python ask.py [HOST:PORT]"""

import sys

import numpy as np
import tritonclient.grpc as grpcclient

address = sys.argv[1] if len(sys.argv) > 1 else "localhost:8001"
celsius = np.array([[20], [100]], np.float32)  # a row for each temperature
x = grpcclient.InferInput("x", celsius.shape, "FP32")
x.set_data_from_numpy(celsius)
with grpcclient.InferenceServerClient(address) as client:
    answer = client.infer("temperature", [x], client_timeout=10)
for degrees, (fahrenheit, kelvins) in zip(celsius[:, 0], answer.as_numpy("y"), strict=True):
    print(f"{degrees:.0f} °C are {fahrenheit:.0f} °F and {kelvins:.2f} K")

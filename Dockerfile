# The inference server, for CPUs unless an engine for GPUs is chosen:
#
#     docker build -t penstock .
#     docker build -t penstock:vllm --build-arg ENGINE=vllm .
#     docker run -p 8000-8002:8000-8002 -v /path/to/models:/models penstock
#
# ENGINE is a list of extras of the package: onnx, openvino, openai (the API over those two), torch, vllm
# (which brings its own). deploy/llm/compose.yaml is a language model behind OpenAI's API in one command.
#
# TensorRT-LLM comes with an image of NVIDIA's (GPUs only; never run by us):
#
#     docker build -t penstock:trtllm --target trtllm .
ARG PYTHON=3.11
ARG TRTLLM=nvcr.io/nvidia/tensorrt-llm/release:1.2.1

FROM python:${PYTHON}-slim AS wheel
# Only this stage needs a compiler, of whatever version Debian has.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml hatch_build.py LICENSE README.md ./
COPY service service
COPY backends backends
ENV PENSTOCK_COMPILE=1
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim AS install
ARG ENGINE=onnx,openvino,openai
COPY --from=wheel /wheels /wheels
COPY deploy/image/requirements.txt /requirements.txt
# What the default engines need is pinned with hashes, the server's own needs among it; other engines
# bring pins of their own, so that what they need is as new as they let it be.
RUN python -m venv /opt/penstock \
    && if [ "${ENGINE}" = onnx,openvino,openai ]; then \
        /opt/penstock/bin/pip install --no-cache-dir --require-hashes -r /requirements.txt; \
    fi \
    && /opt/penstock/bin/pip install --no-cache-dir "$(echo /wheels/penstock-*.whl)[${ENGINE}]"

FROM ${TRTLLM} AS trtllm
# Into the Python that has TensorRT-LLM, which is another one than that of the wheel above: the same
# code, not compiled.
COPY pyproject.toml hatch_build.py LICENSE README.md /tmp/penstock/
COPY service /tmp/penstock/service
COPY backends /tmp/penstock/backends
RUN pip install --no-cache-dir /tmp/penstock PyYAML \
    && rm -rf /tmp/penstock \
    && install --directory /models
ENV PYTHONUNBUFFERED=1
EXPOSE 8000 8001 8002
# The engine spawns its workers through MPI, which wants a launcher.
CMD ["trtllm-llmapi-launch", "tritonserver", "--model-repository=/models"]

FROM python:${PYTHON}-slim
RUN useradd --uid 1000 --create-home --shell /usr/sbin/nologin penstock \
    && install --directory --owner=penstock --group=penstock /models /cache
COPY --from=install /opt/penstock /opt/penstock
ENV PATH=/opt/penstock/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HEALTH_URL=http://127.0.0.1:8000/v2/health/ready
USER 1000:1000
WORKDIR /home/penstock
EXPOSE 8000 8001 8002
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import os, urllib.request as web; web.urlopen(os.environ['HEALTH_URL'], timeout=4)"]
# No entry point, so that `docker run IMAGE tritonserver --model-repository=...` works as elsewhere.
CMD ["tritonserver", "--model-repository=/models"]

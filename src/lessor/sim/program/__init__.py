"""Users' own asyncio code in a simulated world, with the real `AsyncClient` on virtual time."""

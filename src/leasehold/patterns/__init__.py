"""What people build with leases, ready made: decisions that are pure, and small drivers for threads and for asyncio."""

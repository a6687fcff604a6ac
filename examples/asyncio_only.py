"""An asyncio program: enqueue, run and await jobs without a second process."""

import asyncio
import tempfile

from holdfast import Context, Holdfast
from holdfast.contrib.asyncio import working

hf = Holdfast(f"sqlite:///{tempfile.mkdtemp()}/work.db", default_tenant=True)


@hf.job("page.fetch")
async def fetch_page(job: Context, url: str) -> int:
    await job.aprogress(1, 2, "connected")
    await asyncio.sleep(0.01)  # An HTTP request, for example.
    return len(url)


async def main() -> None:
    async with working(hf, async_concurrency=10):
        handles = [await fetch_page.aenqueue(url=f"https://example.com/{n}") for n in range(3)]
        sizes = await asyncio.gather(*handles)
        found = await hf.aget(handles[0].id)
    print(f"sizes {sizes}, progress {found.progress['note']}")


asyncio.run(main())
hf.close()

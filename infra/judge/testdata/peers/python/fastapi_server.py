# The weather, sold by FastAPI as the Python package of the x402 project shows it.
import os

import httpx
import uvicorn
from fastapi import FastAPI, HTTPException
from x402 import x402ResourceServer
from x402.http import FacilitatorConfig, HTTPFacilitatorClient
from x402.http.middleware.fastapi import payment_middleware
from x402.mechanisms.evm.exact import ExactEvmServerScheme

app = FastAPI()
server = x402ResourceServer(HTTPFacilitatorClient(FacilitatorConfig(url=os.environ["FACILITATOR"])))
server.register("eip155:8453", ExactEvmServerScheme())
accepts = {"scheme": "exact", "payTo": os.environ["PAY_TO"], "price": "$" + os.environ["PRICE"], "network": "eip155:8453"}
app.middleware("http")(payment_middleware({"GET /weather": {"accepts": accepts}}, server))


@app.get("/weather")
async def weather(city: str):
    async with httpx.AsyncClient() as station:
        answer = await station.get(os.environ["UPSTREAM"])
    if answer.status_code != 200:
        raise HTTPException(status_code=503, detail="the station does not answer")
    return {"city": city, "weather": answer.text}


uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")

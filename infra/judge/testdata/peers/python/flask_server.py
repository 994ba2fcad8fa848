# The weather, sold by Flask as the Python package of the x402 project shows it.
import os

import httpx
from flask import Flask, abort, request
from x402 import x402ResourceServerSync
from x402.http import FacilitatorConfig, HTTPFacilitatorClientSync
from x402.http.middleware.flask import payment_middleware
from x402.mechanisms.evm.exact import ExactEvmServerScheme

app = Flask(__name__)
server = x402ResourceServerSync(HTTPFacilitatorClientSync(FacilitatorConfig(url=os.environ["FACILITATOR"])))
server.register("eip155:8453", ExactEvmServerScheme())
accepts = {"scheme": "exact", "payTo": os.environ["PAY_TO"], "price": "$" + os.environ["PRICE"], "network": "eip155:8453"}
payment_middleware(app, {"GET /weather": {"accepts": accepts}}, server)


@app.get("/weather")
def weather():
    answer = httpx.get(os.environ["UPSTREAM"])
    if answer.status_code != 200:
        abort(503, "the station does not answer")
    return {"city": request.args["city"], "weather": answer.text}


app.run(host="127.0.0.1", port=int(os.environ["PORT"]), threaded=True)

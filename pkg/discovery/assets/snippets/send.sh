# SIGNATURE holds base64 of the signed JSON, from any wallet or library, and
# IDEMPOTENCY_KEY the key that it is sent with, always the same one; without one
# the key is made of the signature. While the answer may still come, both are sent
# again: it is never charged twice.
key=${IDEMPOTENCY_KEY:-signed-$(printf '%s' "$SIGNATURE" | cksum | tr ' ' -)}
echo "IDEMPOTENCY_KEY=$key" >&2
url='https://api.example.com/v1/tools/dns?domain=example.com&type=MX'
end=$(($(date +%s) + 90))
while :; do
  answer=$(curl -sSi -m 40 --suppress-connect-headers -H 'Accept: application/json' \
    -H "Idempotency-Key: $key" -H "PAYMENT-SIGNATURE: $SIGNATURE" "$url") || answer=
  case $answer in *'"retryable":false'*) break ;; esac
  case ${answer#* } in '' | 409* | 429* | 5*) ;; *) break ;; esac
  wait=$(printf '%s' "$answer" | tr -d '\r' | sed -n 's/^[Rr]etry-[Aa]fter: \([1-9][0-9]\{0,4\}\)$/\1/p' | head -n 1)
  [ $(($(date +%s) + ${wait:=3})) -lt "$end" ] || break
  echo "No answer yet: sending the same signature again in $wait s" >&2
  sleep "$wait"
done
printf '%s\n' "$answer"
case ${answer#* } in
200*) true ;;
*'"charged":'[tf]*'"retryable":false'*) false ;;
*)
  echo "Not answered. If it was charged, this gets the answer for 24 hours, without a new charge:" >&2
  echo "curl -i -H 'Idempotency-Key: $key' -H 'PAYMENT-SIGNATURE: $SIGNATURE' '$url'" >&2
  false ;;
esac

// modern.mjs in the revision that both sides know, which is the one without a handshake.
process.env.ERA = "auto";
await import("./modern.mjs");

// Runs modern.mjs so that client and server negotiate the revision, which is then the one
// without a handshake.
process.env.ERA = "auto";
await import("./modern.mjs");

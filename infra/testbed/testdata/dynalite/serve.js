'use strict'
// Serves DynamoDB on a free port of 127.0.0.1 and prints where.
const dynalite = require('dynalite')

const server = dynalite({ createTableMs: 0, deleteTableMs: 0, updateTableMs: 0 })
server.listen(0, '127.0.0.1', () => console.log(`dynalite is ready on http://127.0.0.1:${server.address().port}`))

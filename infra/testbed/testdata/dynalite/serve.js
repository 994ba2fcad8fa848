'use strict'
// Serves DynamoDB on a free port of 127.0.0.1 and prints the port. It ends when
// its standard input does, so that it cannot outlive a test that was killed.
const dynalite = require('dynalite')

const server = dynalite({ createTableMs: 0, deleteTableMs: 0, updateTableMs: 0 })
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
process.stdin.on('end', () => process.exit(0)).resume()

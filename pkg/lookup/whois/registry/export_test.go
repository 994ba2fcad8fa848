package registry

import "time"

// WithTimeouts bounds the downloads and the calls of the Cache of a new client.
// A test in which none may end early, however busy the machine is, gives hours.
func WithTimeouts(c *Client, download, cache time.Duration) *Client {
	c.bootstrap.fetchTimeout, c.bootstrap.cacheTimeout = download, cache
	return c
}

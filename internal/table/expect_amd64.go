package table

//go:noescape
func expect(s *Shard, at, tag uint64)

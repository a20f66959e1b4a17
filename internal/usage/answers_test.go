package usage

// Answers in the shape in which providers send them, by what they tell.
var answers = []struct {
	name   string
	format *Format
	kind   string
	body   string
	want   Counts
}{
	{
		name: "openai chat", format: OpenAI, kind: "application/json",
		body: `{
  "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
  "object": "chat.completion",
  "created": 1741569952,
  "model": "gpt-4.1-2025-04-14",
  "choices": [
    {
      "index": 0,
      "message": {
        "role": "assistant",
        "content": "Hello! \"usage\": {\"completion_tokens\": 1} is what you asked for \\",
        "refusal": null,
        "annotations": []
      },
      "logprobs": null,
      "finish_reason": "stop"
    }
  ],
  "usage": {
    "prompt_tokens": 1019,
    "completion_tokens": 210,
    "total_tokens": 1229,
    "prompt_tokens_details": {"cached_tokens": 512, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 128, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
  },
  "service_tier": "default"
}
`,
		want: Counts{Input: 1019, Cached: 512, Output: 210, Reasoning: 128, InputTold: true, OutputTold: true, Final: true},
	},
	{
		name: "openai chat, a tool's arguments look like usage", format: OpenAI, kind: "application/json; charset=utf-8",
		body: `{"usage":{"prompt_tokens":10,"completion_tokens":20},"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"{\"usage\":{\"completion_tokens\":900}}"}}],"usage":{"completion_tokens":800}}}],"other":{"usage":{"prompt_tokens":700}}}`,
		want: Counts{Input: 10, Output: 20, InputTold: true, OutputTold: true, Final: true},
	},
	{
		name: "openai chat stream", format: OpenAI, kind: "text/event-stream",
		body: `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"\"usage\":{\"completion_tokens\":1000}"},"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}}}

data: [DONE]

`,
		want: Counts{Input: 19, Cached: 4, Output: 10, Reasoning: 3, InputTold: true, OutputTold: true, Final: true, Kept: true},
	},
	{
		name: "openai chat stream without include_usage", format: OpenAI, kind: "text/event-stream",
		body: "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n",
	},
	{
		name: "openai chat stream that tells the usage so far, and breaks off", format: OpenAI, kind: "text/event-stream",
		body: "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\r\n\r\ndata: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\r\n\r\ndata: {\"choices\":",
		want: Counts{Input: 7, Output: 2, InputTold: true, OutputTold: true, Kept: true},
	},
	{
		name: "openai responses stream", format: OpenAI, kind: "text/event-stream; charset=utf-8",
		body: `event: response.created
data: {"type":"response.created","response":{"id":"resp_67c9fdcecf488190","object":"response","status":"in_progress","output":[],"usage":null,"user":null,"metadata":{}}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hi"}

event: response.completed
data: {"type":"response.completed","response":{"id":"resp_67c9fdcecf488190","object":"response","status":"completed","output":[{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hi there!","annotations":[]}]}],"usage":{"input_tokens":37,"input_tokens_details":{"cached_tokens":30},"output_tokens":11,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":48},"user":null,"metadata":{}}}

`,
		want: Counts{Input: 37, Cached: 30, Output: 11, Reasoning: 5, InputTold: true, OutputTold: true, Final: true, Kept: true},
	},
	{
		name: "openai embeddings", format: OpenAI, kind: "application/json",
		body: `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[-0.006929283,0.0023064255]}],"model":"text-embedding-3-small","usage":{"prompt_tokens":5,"total_tokens":5}}`,
		want: Counts{Input: 5, InputTold: true, Final: true},
	},
	{
		name: "anthropic messages", format: Anthropic, kind: "application/json",
		body: `{"id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"Hi!"},{"type":"tool_use","id":"t","name":"n","input":{"usage":{"output_tokens":9000}}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":2095,"cache_creation_input_tokens":248,"cache_read_input_tokens":1111,"cache_creation":{"ephemeral_5m_input_tokens":248,"ephemeral_1h_input_tokens":0},"output_tokens":503,"service_tier":"standard"}}`,
		want: Counts{Input: 2095 + 248 + 1111, Cached: 1111, Written: 248, Output: 503, InputTold: true, OutputTold: true, Final: true},
	},
	{
		name: "anthropic stream", format: Anthropic, kind: "text/event-stream; charset=utf-8",
		body: `event: message_start
data: {"type":"message_start","message":{"id":"msg_1nZdL29xx5MUA1yADyHTEsnR8uuvGzszyY","type":"message","role":"assistant","content":[],"model":"claude-sonnet-4-5","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":3,"cache_read_input_tokens":7,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"usage\":{\"output_tokens\":77}}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}

event: message_stop
data: {"type":"message_stop"}

`,
		want: Counts{Input: 35, Cached: 7, Written: 3, Output: 15, InputTold: true, OutputTold: true, Final: true, Kept: true},
	},
	{
		name: "anthropic stream that breaks off", format: Anthropic, kind: "text/event-stream",
		body: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hel",
		want: Counts{Input: 25, Output: 1, InputTold: true, OutputTold: true},
	},
	{
		name: "lines of JSON by paths", format: ollama, kind: "application/x-ndjson",
		body: `{"model":"llama3.2","message":{"role":"assistant","content":"The"},"done":false}
{"model":"llama3.2","message":{"role":"assistant","content":""},"done":true,"total_duration":4883583458,"prompt_eval_count":26,"eval_count":282,"eval_duration":4535599000}
`,
		want: Counts{Input: 26, Output: 282, InputTold: true, OutputTold: true, Final: true},
	},
	{
		name: "an array by paths, two of them added up", format: gemini, kind: "application/json",
		body: `[{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":11,"totalTokenCount":11}},
{"candidates":[],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":73,"thoughtsTokenCount":40,"cachedContentTokenCount":9,"totalTokenCount":124}}]`,
		want: Counts{Input: 11, Cached: 9, Output: 113, Reasoning: 40, InputTold: true, OutputTold: true, Final: true},
	},
	{
		name: "one number under two names", format: OpenAI, kind: "application/json",
		body: `{"usage":{"prompt_tokens":5,"input_tokens":5,"completion_tokens":6,"output_tokens":6}}`,
		want: Counts{Input: 5, Output: 6, InputTold: true, OutputTold: true, Final: true},
	},
	{
		name: "negative", format: OpenAI, kind: "application/json",
		body: `{"usage":{"prompt_tokens":5,"completion_tokens":-6}}`,
		want: Counts{Input: 5, InputTold: true, Final: true, Absurd: true},
	},
	{
		name: "1e30", format: OpenAI, kind: "application/json",
		body: `{"usage":{"prompt_tokens":1e30,"completion_tokens":6}}`,
		want: Counts{Output: 6, OutputTold: true, Final: true, Absurd: true},
	},
	{
		name: "a number of 40 digits", format: Anthropic, kind: "text/event-stream",
		body: "data: {\"usage\":{\"output_tokens\":1000000000000000000000000000000000000000}}\n\n",
		want: Counts{Absurd: true},
	},
	{
		name: "a number as text", format: OpenAI, kind: "application/json",
		body: `{"usage":{"prompt_tokens":"5","completion_tokens":6}}`,
		want: Counts{Output: 6, OutputTold: true, Final: true, Absurd: true},
	},
	{
		name: "an object and a list in the place of numbers", format: OpenAI, kind: "application/json",
		body: `{"usage":{"prompt_tokens":{"a":[1]},"completion_tokens":[6,{"b":2}],"completion_tokens_details":[]}}`,
		want: Counts{Absurd: true},
	},
	{
		name: "null", format: OpenAI, kind: "application/json",
		body: `{"usage":{"prompt_tokens":null,"completion_tokens":null},"response":null}`,
	},
	{
		name: "half a text", format: OpenAI, kind: "application/json",
		body: `{"usage":{"prompt_tokens":5,"completion_tokens":6`,
		want: Counts{Input: 5, InputTold: true},
	},
	{
		name: "one event in several lines of data, with comments between", format: OpenAI, kind: "text/event-stream",
		body: ": hello\n\ndata: {\"usage\":\n: usage\nid: 7\ndata: {\"prompt_tokens\": 5,\ndata:\"completion_tokens\":6\ndata:}}\n\n",
		want: Counts{Input: 5, Output: 6, InputTold: true, OutputTold: true, Kept: true},
	},
	{
		name: "lines that end in carriage returns", format: OpenAI, kind: "text/event-stream",
		body: "data: {}\r\rdata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}\r\rdata: [DONE]\r\r",
		want: Counts{Input: 5, Output: 6, InputTold: true, OutputTold: true, Final: true, Kept: true},
	},
	{
		name: "data in fields of another name", format: OpenAI, kind: "text/event-stream",
		body: "datum: {\"usage\":{\"prompt_tokens\":5}}\n\n data: {\"usage\":{\"prompt_tokens\":6}}\n\nxdata: {\"usage\":{\"prompt_tokens\":7}}\n\n",
	},
	{
		name: "the end without a blank line", format: OpenAI, kind: "text/event-stream",
		body: "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}",
		want: Counts{Input: 5, Output: 6, InputTold: true, OutputTold: true, Kept: true},
	},
	{
		name: "neither JSON nor events", format: OpenAI, kind: "text/html",
		body: `{"usage":{"prompt_tokens":5,"completion_tokens":6}}`,
		want: Counts{Opaque: true},
	},
	{
		name: "no type", format: OpenAI, kind: "",
		body: `{"usage":{"prompt_tokens":5,"completion_tokens":6}}`,
		want: Counts{Input: 5, Output: 6, InputTold: true, OutputTold: true, Final: true},
	},
	{
		name: "key with an escape", format: OpenAI, kind: "application/json",
		body: `{"usage":{"prompt\u005ftokens":5,"completion_tokens\"":6},"us\"age":{"prompt_tokens":7}}`,
	},
}

func byPaths(paths map[int][]string) *Format {
	list := make([][]string, len(Quantities))
	for q, p := range paths {
		list[q] = p
	}
	f, _, _ := NewFormat(list)
	return f
}

var (
	ollama = byPaths(map[int][]string{Input: {"prompt_eval_count"}, Output: {"eval_count"}})
	gemini = byPaths(map[int][]string{
		Input: {"usageMetadata.promptTokenCount"}, Cached: {"usageMetadata.cachedContentTokenCount"},
		Output:    {"usageMetadata.candidatesTokenCount", "usageMetadata.thoughtsTokenCount"},
		Reasoning: {"usageMetadata.thoughtsTokenCount"},
	})
)

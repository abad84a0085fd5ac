# cython: language_level=3, freethreading_compatible=True, boundscheck=False
"""Rollouts and scores from and to protobuf's wire format, without messages in between.

The codec has the readable twin of each function, by messages: there, to read a field, to set an
attribute and to copy a text is a call each, and a batch has thousands.

Only what is plain is read and written here: fields that are known below, each once, as all
serialisers write them.  Whatever else there is goes to protobuf: other fields of a request or a
reply as bytes that are a message again (serialised messages that stand one behind the other are
one), a rollout with nodes or with an unknown field by itself, and all bytes where anything about
them is odd.  So a field that is new in the protocol, or an attribute that is new in a rollout,
costs speed until it is added here, and nothing else.

The bytes come from outside: nothing is read beyond the end of what it stands in.
"""

import sys

from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.float cimport PyFloat_FromDouble
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport (
    PyUnicode_AsUTF8AndSize, PyUnicode_CheckExact, PyUnicode_DecodeUTF8,
)
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

from consensuspr.scoring.types import CHANNELS, Rollout, Score, Status
from consensuspr.v1 import scoring_pb2 as pb

if sys.byteorder != "little":
    raise ImportError("numbers are written here as a little-endian machine has them")

cdef extern from *:
    """
    /* An object without values yet: all of its slots are to be filled. */
    static PyObject* blank(PyObject* kind) {
        return PyType_GenericAlloc((PyTypeObject*)kind, 0);
    }
    /* What an attribute of a class with slots does, without looking for it by name. */
    static PyObject* slot_value(PyObject* slot, PyObject* owner) {
        return Py_TYPE(slot)->tp_descr_get(slot, owner, (PyObject*)Py_TYPE(owner));
    }
    static int fill_slot(PyObject* slot, PyObject* owner, PyObject* value) {
        return Py_TYPE(slot)->tp_descr_set(slot, owner, value);
    }
    """
    object blank(object kind)
    object slot_value(object slot, object owner)
    int fill_slot(object slot, object owner, object value) except -1

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    int _PyBytes_Resize(PyObject** held, Py_ssize_t size) except -1

cdef extern from *:
    """
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif

    /* Write sixteen characters as a byte each; return which of them that is wrong for. */
    #if defined(__SSE2__)
    #define LOAD(P) _mm_loadu_si128((const __m128i*)(P))
    static inline unsigned narrow_Py_UCS1(const Py_UCS1* text, uint8_t* out) {
        const __m128i bytes = LOAD(text);
        _mm_storeu_si128((__m128i*)out, bytes);
        return (unsigned)_mm_movemask_epi8(bytes);
    }
    static inline unsigned narrow_Py_UCS2(const Py_UCS2* text, uint8_t* out) {
        const __m128i high = _mm_set1_epi16((short)0xFF80), zero = _mm_setzero_si128();
        const __m128i a = LOAD(text), b = LOAD(text + 8);
        _mm_storeu_si128((__m128i*)out, _mm_packus_epi16(a, b));
        return 0xFFFFu ^ (unsigned)_mm_movemask_epi8(_mm_packs_epi16(
            _mm_cmpeq_epi16(_mm_and_si128(a, high), zero),
            _mm_cmpeq_epi16(_mm_and_si128(b, high), zero)));
    }
    static inline unsigned narrow_Py_UCS4(const Py_UCS4* text, uint8_t* out) {
        const __m128i high = _mm_set1_epi32((int)0xFFFFFF80), zero = _mm_setzero_si128();
        const __m128i a = LOAD(text), b = LOAD(text + 4), c = LOAD(text + 8), d = LOAD(text + 12);
        _mm_storeu_si128((__m128i*)out, _mm_packus_epi16(
            _mm_packs_epi32(a, b), _mm_packs_epi32(c, d)));
        return 0xFFFFu ^ (unsigned)_mm_movemask_epi8(_mm_packs_epi16(
            _mm_packs_epi32(_mm_cmpeq_epi32(_mm_and_si128(a, high), zero),
                            _mm_cmpeq_epi32(_mm_and_si128(b, high), zero)),
            _mm_packs_epi32(_mm_cmpeq_epi32(_mm_and_si128(c, high), zero),
                            _mm_cmpeq_epi32(_mm_and_si128(d, high), zero))));
    }
    #define AT_A_TIME 16
    #else
    #define AT_A_TIME PY_SSIZE_T_MAX
    #define narrow_Py_UCS1(TEXT, OUT) 1u
    #define narrow_Py_UCS2 narrow_Py_UCS1
    #define narrow_Py_UCS4 narrow_Py_UCS1
    #endif

    static inline uint8_t* put_character(uint8_t* out, uint32_t code) {
        if (code < 0x80)
            *out++ = (uint8_t)code;
        else {
            if (code < 0x800)
                *out++ = (uint8_t)(0xC0 | code >> 6);
            else {
                if (code < 0x10000)
                    *out++ = (uint8_t)(0xE0 | code >> 12);
                else {
                    *out++ = (uint8_t)(0xF0 | code >> 18);
                    *out++ = (uint8_t)(0x80 | (code >> 12 & 0x3F));
                }
                *out++ = (uint8_t)(0x80 | (code >> 6 & 0x3F));
            }
            *out++ = (uint8_t)(0x80 | (code & 0x3F));
        }
        return out;
    }

    /* Sixteen bytes are written where sixteen characters are left, so within the text's own. */
    #define UTF8_PUT(KIND)                                                                        \\
        static uint8_t* put_##KIND(const KIND* text, Py_ssize_t length, uint8_t* out) {           \\
            const KIND* end = text + length;                                                      \\
            while (text < end) {                                                                  \\
                if (end - text >= AT_A_TIME) {                                                    \\
                    const unsigned other = narrow_##KIND(text, out);                              \\
                    const int plain = other ? __builtin_ctz(other) : 16;                          \\
                    text += plain;                                                                \\
                    out += plain;                                                                 \\
                    if (!other)                                                                   \\
                        continue;                                                                 \\
                }                                                                                 \\
                out = put_character(out, *text++);                                                \\
            }                                                                                     \\
            return out;                                                                           \\
        }
    UTF8_PUT(Py_UCS1)
    UTF8_PUT(Py_UCS2)
    UTF8_PUT(Py_UCS4)

    static uint8_t* put_utf8(PyObject* text, uint8_t* out) {
        const void* data = PyUnicode_DATA(text);
        const Py_ssize_t length = PyUnicode_GET_LENGTH(text);
        switch (PyUnicode_KIND(text)) {
            case PyUnicode_1BYTE_KIND: return put_Py_UCS1((const Py_UCS1*)data, length, out);
            case PyUnicode_2BYTE_KIND: return put_Py_UCS2((const Py_UCS2*)data, length, out);
            default: return put_Py_UCS4((const Py_UCS4*)data, length, out);
        }
    }
    """
    # Write a text in UTF-8, a lone surrogate in three bytes, and return where it ends.  Python's
    # own encoder goes character by character through what is not ASCII.
    uint8_t* put_utf8(object text, uint8_t* out)

cdef enum:
    VARINT = 0
    EIGHT_BYTES = 1
    LENGTH = 2
    FOUR_BYTES = 5
    MAX_VARINT = 5  # bytes of what is read here: 32 bits
    MAX_HEAD = 2 + MAX_VARINT  # bytes of a tag and a length
    HEAD_BYTES = 256           # what usually stands before a response, and more
    MOST_A_CHARACTER = 4       # bytes in UTF-8


cdef struct Field:
    uint32_t number
    uint32_t wire
    uint32_t value       # of a number
    const uint8_t* data  # of what has a length
    Py_ssize_t size


cdef bint read_varint(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, uint32_t* number
) noexcept nogil:
    """Read a number and move past it; False where it is none of 32 bits."""
    cdef uint64_t read = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at[0] < end and shift < 7 * MAX_VARINT:
        byte = data[at[0]]
        at[0] += 1
        read |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            number[0] = <uint32_t>read
            return not read >> 32
        shift += 7
    return False


cdef bint read_field(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, Field* field
) noexcept nogil:
    """Read a field and move past it; False where protobuf has to judge."""
    cdef uint32_t tag, size
    if not read_varint(data, at, end, &tag):
        return False
    field.number = tag >> 3
    field.wire = tag & 7
    field.data = NULL
    if not field.number:
        return False
    if field.wire == VARINT:
        return read_varint(data, at, end, &field.value)
    if field.wire == LENGTH:
        if not read_varint(data, at, end, &size):
            return False
        field.data = data + at[0]
        field.size = size
    elif field.wire == EIGHT_BYTES:
        size = 8
    elif field.wire == FOUR_BYTES:
        size = 4
    else:
        return False
    if size > end - at[0]:
        return False
    at[0] += size
    return True


cdef class Text:
    """The latest value of a text field: the next one is often the same."""

    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef str text

    def __cinit__(self):
        self.text = ""

    cdef str of(self, const Field* field):
        """Return the text of a field, whose bytes stay where they are as long as this is used."""
        if field.size != self.size or (
            field.size and memcmp(field.data, self.data, field.size)
        ):
            self.text = PyUnicode_DecodeUTF8(<const char*>field.data, field.size, NULL)
            self.data = field.data
            self.size = field.size
        return self.text


cdef class Buffer:
    """Bytes that grow."""

    cdef PyObject* held   # a bytes object that nobody else knows, NULL: none yet
    cdef uint8_t* data
    cdef Py_ssize_t size  # of it that is written
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        Py_XDECREF(self.held)

    cdef uint8_t* room(self, Py_ssize_t more) except NULL:
        """Return where ``more`` bytes can be written; what is written is to be added to size."""
        if self.size + more > self.capacity:
            self.resize(2 * (self.size + more))
        return self.data + self.size

    cdef int resize(self, Py_ssize_t capacity) except -1:
        if self.held == NULL:
            made = PyBytes_FromStringAndSize(NULL, capacity)
            Py_INCREF(made)
            self.held = <PyObject*>made
            made = None
        else:
            self.capacity = 0  # where there is no memory, nothing is left
            _PyBytes_Resize(&self.held, capacity)
        self.data = <uint8_t*>PyBytes_AS_STRING(<object>self.held)
        self.capacity = capacity
        return 0

    cdef int put(self, const void* data, Py_ssize_t size) except -1:
        memcpy(self.room(size + 1), data, size)
        self.size += size
        return 0

    cdef int put_varint(self, uint64_t number) except -1:
        cdef uint8_t* out = self.room(10)
        cdef Py_ssize_t at = 0
        while number > 127:
            out[at] = <uint8_t>(number & 127 | 128)
            number >>= 7
            at += 1
        out[at] = <uint8_t>number
        self.size += at + 1
        return 0

    cdef int put_head(self, uint32_t number, Py_ssize_t size) except -1:
        """Write what stands before a field that has a length."""
        self.put_varint(number << 3 | LENGTH)
        return self.put_varint(size)

    cdef bytes taken(self):
        """Return what was written; the buffer is empty then."""
        if not self.size:
            return b""
        self.resize(self.size)
        taken = <bytes>self.held
        Py_XDECREF(self.held)
        self.held = NULL
        self.size = self.capacity = 0
        return taken


cdef Py_ssize_t varint_size(uint64_t number) noexcept nogil:
    cdef Py_ssize_t size = 1
    while number > 127:
        number >>= 7
        size += 1
    return size


cdef tuple others(kind, known):
    """Return the slots of a class that are not known, each with its default."""
    return tuple([
        (getattr(kind, name), field.default)
        for name, field in kind.__dataclass_fields__.items()
        if name not in known
    ])


def numbers_of(message):
    """Return the numbers of a message's fields by name."""
    return {field.name: field.number for field in message.DESCRIPTOR.fields}


# -- rollouts --------------------------------------------------------------------------------------

cdef object ROLLOUT = Rollout
cdef object PROBLEM_ID = Rollout.problem_id
cdef object RESPONSE = Rollout.response
cdef object GROUND_TRUTH = Rollout.ground_truth
cdef object NUM_TOKENS = Rollout.num_tokens
cdef object DATA_SOURCE = Rollout.data_source
cdef object ROLLOUT_ID = Rollout.rollout_id
cdef object SAMPLE = Rollout.sample
cdef tuple OTHER_OF_ROLLOUT = others(
    Rollout,
    (
        "problem_id", "response", "ground_truth", "num_tokens", "data_source", "rollout_id",
        "sample",
    ),
)

cdef dict _request = numbers_of(pb.ScoreRequest)
cdef dict _rollout = numbers_of(pb.Rollout)
cdef uint32_t ROLLOUTS_FIELD = _request["rollouts"]
cdef uint32_t PROBLEM_ID_FIELD = _rollout["problem_id"]
cdef uint32_t RESPONSE_FIELD = _rollout["response"]
cdef uint32_t GROUND_TRUTH_FIELD = _rollout["ground_truth"]
cdef uint32_t NUM_TOKENS_FIELD = _rollout["num_tokens"]
cdef uint32_t DATA_SOURCE_FIELD = _rollout["data_source"]
cdef uint32_t ROLLOUT_ID_FIELD = _rollout["rollout_id"]
cdef uint32_t SAMPLE_FIELD = _rollout["sample"]


def decode_rollouts(bytes request not None, decode_other, decode_sample):
    """Return the rollouts of a scoring request, and its other fields as a request; or None.

    Args:
        request: the bytes.
        decode_other: returns the rollout of the bytes of its message, where it has more than texts
            and a number.
        decode_sample: returns the sample of the bytes of its message; None: it is passed over.

    Returns:
        None where protobuf has to judge the bytes.
    """
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(request)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(request)
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t begin
    cdef Py_ssize_t kept = 0  # where those other fields begin that are not taken yet
    cdef Field field
    cdef Text problem_id = Text(), ground_truth = Text(), data_source = Text(), rollout_id = Text()
    cdef list rollouts = [], rest = []
    while at < end:
        begin = at
        if not read_field(data, &at, end, &field):
            return None
        if field.number != ROLLOUTS_FIELD or field.wire != LENGTH:
            continue
        if kept < begin:
            rest.append(request[kept:begin])
        kept = at
        try:
            rollout = read_rollout(
                &field, problem_id, ground_truth, data_source, rollout_id, decode_sample
            )
        except UnicodeDecodeError:
            return None
        if rollout is None:
            rollout = decode_other(PyBytes_FromStringAndSize(<const char*>field.data, field.size))
        rollouts.append(rollout)
    if kept < end:
        rest.append(request[kept:end])
    return rollouts, b"".join(rest)


cdef object read_rollout(
    const Field* message,
    Text problem_id,
    Text ground_truth,
    Text data_source,
    Text rollout_id,
    decode_sample,
):
    """Return a rollout, None where it is not plain."""
    cdef Field field
    cdef Py_ssize_t at = 0
    cdef uint32_t seen = 0
    cdef object problem = "", response = b"", truth = None, tokens = None
    cdef object source = None, name = None, sample = None
    while at < message.size:
        if not read_field(message.data, &at, message.size, &field):
            return None
        if field.number > 31 or seen >> field.number & 1:
            return None
        seen |= <uint32_t>1 << field.number
        if field.wire == VARINT:
            if field.number != NUM_TOKENS_FIELD:
                return None
            tokens = field.value or None
        elif field.wire != LENGTH:
            return None
        elif field.number == RESPONSE_FIELD:
            response = PyBytes_FromStringAndSize(<const char*>field.data, field.size)
        elif field.number == PROBLEM_ID_FIELD:
            problem = problem_id.of(&field)
        elif field.number == GROUND_TRUTH_FIELD:
            truth = ground_truth.of(&field)
        elif field.number == DATA_SOURCE_FIELD:
            source = data_source.of(&field) or None
        elif field.number == ROLLOUT_ID_FIELD:
            name = rollout_id.of(&field) or None
        elif field.number == SAMPLE_FIELD:
            if decode_sample is not None:
                sample = decode_sample(
                    PyBytes_FromStringAndSize(<const char*>field.data, field.size)
                )
        else:
            return None
    rollout = blank(ROLLOUT)
    fill_slot(PROBLEM_ID, rollout, problem)
    fill_slot(RESPONSE, rollout, response)
    fill_slot(GROUND_TRUTH, rollout, truth)
    fill_slot(NUM_TOKENS, rollout, tokens)
    fill_slot(DATA_SOURCE, rollout, source)
    fill_slot(ROLLOUT_ID, rollout, name)
    fill_slot(SAMPLE, rollout, sample)
    for slot, default in OTHER_OF_ROLLOUT:
        fill_slot(slot, rollout, default)
    return rollout


cdef struct Utf8:
    const char* data
    Py_ssize_t size


cdef bint utf8_of(object text, Utf8* found) except -1:
    """Find the bytes of a text; False where it is none that the protocol can carry."""
    if not PyUnicode_CheckExact(text):
        return False
    try:
        found.data = PyUnicode_AsUTF8AndSize(text, &found.size)
    except UnicodeEncodeError:
        return False
    return True


cdef Py_ssize_t field_size(uint32_t number, Py_ssize_t size) noexcept nogil:
    """Return what a field takes that has a length."""
    return varint_size(<uint64_t>number << 3) + varint_size(size) + size


cdef Py_ssize_t text_size(uint32_t number, const Utf8* text) noexcept nogil:
    return 0 if text.data == NULL else field_size(number, text.size)


cdef int put_text(Buffer out, uint32_t number, const Utf8* text) except -1:
    if text.data != NULL:
        out.put_head(number, text.size)
        out.put(text.data, text.size)
    return 0


cdef Py_ssize_t head_of(Py_ssize_t others, Py_ssize_t response) noexcept nogil:
    """Return what stands before a response of some size, with so many bytes of other fields."""
    others += varint_size(<uint64_t>RESPONSE_FIELD << 3) + varint_size(response)
    return varint_size(<uint64_t>ROLLOUTS_FIELD << 3) + varint_size(others + response) + others


cdef bint put_plain(
    object rollout, Buffer out, Py_ssize_t max_response, Py_ssize_t* size, encode_sample
) except -1:
    """Write a rollout, and tell the size of its response; False where it is not plain.

    Where that is too large, nothing is written, and the size is one that is too large.
    """
    cdef Utf8 problem
    cdef Utf8 truth = Utf8(NULL, 0), source = Utf8(NULL, 0), name = Utf8(NULL, 0)
    cdef Py_ssize_t fields, head, most
    cdef uint64_t tokens = 0
    cdef const char* response = NULL
    cdef uint8_t* data
    for slot, default in OTHER_OF_ROLLOUT:
        if slot_value(slot, rollout) is not default:
            return False
    # All are held on to: the bytes below are theirs.
    text = slot_value(RESPONSE, rollout)
    problem_id = slot_value(PROBLEM_ID, rollout)
    ground_truth = slot_value(GROUND_TRUTH, rollout)
    data_source = slot_value(DATA_SOURCE, rollout)
    rollout_id = slot_value(ROLLOUT_ID, rollout)
    if (
        not utf8_of(problem_id, &problem)
        or (ground_truth is not None and not utf8_of(ground_truth, &truth))
        or (data_source is not None and not utf8_of(data_source, &source))
        or (rollout_id is not None and not utf8_of(rollout_id, &name))
    ):
        return False
    if not source.size:
        source.data = NULL
    if not name.size:
        name.data = NULL
    sample = slot_value(SAMPLE, rollout)
    encoded = None if sample is None else encode_sample(sample)
    count = slot_value(NUM_TOKENS, rollout)
    if count is not None:
        if type(count) is not int:
            return False
        # A count that is none makes no TPN; on the wire it would be an error of the batch.
        tokens = count if 0 < count <= 0xFFFFFFFF else 0
    if PyBytes_CheckExact(text):
        response = PyBytes_AS_STRING(text)
        size[0] = most = PyBytes_GET_SIZE(text)
    elif not PyUnicode_CheckExact(text):
        return False
    elif PyUnicode_IS_ASCII(text):
        response = PyUnicode_AsUTF8AndSize(text, size)
        most = size[0]
    else:
        # Written as it is encoded, and not from the copy that a text keeps of itself, which would
        # stay with the caller.  Of its size only the order is known before.
        size[0] = PyUnicode_GET_LENGTH(text)
        most = MOST_A_CHARACTER * size[0]
    if size[0] > max_response:
        return True
    fields = (
        text_size(PROBLEM_ID_FIELD, &problem)
        + text_size(GROUND_TRUTH_FIELD, &truth)
        + text_size(DATA_SOURCE_FIELD, &source)
        + text_size(ROLLOUT_ID_FIELD, &name)
    )
    if tokens:
        fields += varint_size(<uint64_t>NUM_TOKENS_FIELD << 3) + varint_size(tokens)
    if encoded is not None:
        fields += field_size(SAMPLE_FIELD, PyBytes_GET_SIZE(<bytes?>encoded))
    head = head_of(fields, size[0])
    data = out.room(head + MAX_HEAD + most)
    if response != NULL:
        memcpy(data + head, response, size[0])
    else:
        size[0] = put_utf8(text, data + head) - (data + head)
        if head_of(fields, size[0]) != head:
            memmove(data + head_of(fields, size[0]), data + head, size[0])
    fields += field_size(RESPONSE_FIELD, size[0])
    out.put_head(ROLLOUTS_FIELD, fields)
    put_text(out, PROBLEM_ID_FIELD, &problem)
    put_text(out, GROUND_TRUTH_FIELD, &truth)
    put_text(out, DATA_SOURCE_FIELD, &source)
    if tokens:
        out.put_varint(NUM_TOKENS_FIELD << 3 | VARINT)
        out.put_varint(tokens)
    put_text(out, ROLLOUT_ID_FIELD, &name)
    if encoded is not None:
        out.put_head(SAMPLE_FIELD, PyBytes_GET_SIZE(<bytes>encoded))
        out.put(PyBytes_AS_STRING(<bytes>encoded), PyBytes_GET_SIZE(<bytes>encoded))
    out.put_head(RESPONSE_FIELD, size[0])
    out.size += size[0]
    return True


cdef Py_ssize_t room_for(list items, Py_ssize_t start, Py_ssize_t max_bytes) except -1:
    """Return about how many bytes items take, and the largest one of them while it is written."""
    cdef Py_ssize_t at, length, total = 0, largest = 0
    for at in range(start, len(items)):
        item = items[at]
        if type(item) is ROLLOUT:
            text = slot_value(RESPONSE, item)
            if PyUnicode_CheckExact(text) or PyBytes_CheckExact(text):
                length = len(text)
                largest = max(largest, length)
                total += length + HEAD_BYTES
        if total >= max_bytes:
            break
    return min(total, max_bytes) + MOST_A_CHARACTER * largest


def encode_rollouts(
    list items not None, Py_ssize_t start, bytes before not None, bounds, convert, encode_sample
):
    """Return the bytes of a request for as many items as it may hold.

    Arguments and result are those of the codec's ``encode_score_request``; plain rollouts are
    encoded here, all other items by ``convert``.
    """
    cdef Buffer out = Buffer()
    cdef Py_ssize_t max_bytes = bounds.max_bytes, max_rollouts = bounds.max_rollouts
    cdef Py_ssize_t max_response = bounds.max_response_bytes
    cdef Py_ssize_t max_rollout = bounds.max_rollout_bytes
    cdef Py_ssize_t at, size, response_size = 0, total = 0, count = 0, begin
    cdef list left_out = []
    cdef bint plain
    # Memory that is not written costs nothing, and what is written is not to be moved.
    out.resize(len(before) + HEAD_BYTES + room_for(items, start, max_bytes))
    out.put(PyBytes_AS_STRING(before), len(before))
    at = start
    while at < len(items):
        item = items[at]
        begin = out.size
        plain = type(item) is ROLLOUT and put_plain(
            item, out, max_response, &response_size, encode_sample
        )
        if not plain:
            _, head, response = convert(at, item)
            response_size = len(<bytes?>response)
            if response_size <= max_response:
                out.put(PyBytes_AS_STRING(<bytes?>head), len(<bytes>head))
                out.put(PyBytes_AS_STRING(<bytes>response), response_size)
        size = out.size - begin
        if response_size > max_response or size > max_rollout:
            left_out.append(at)
        elif count and (count >= max_rollouts or total + size > max_bytes):
            out.size = begin
            break
        else:
            total += size
            count += 1
            begin = out.size
        out.size = begin
        at += 1
    return out.taken(), at, left_out


# -- scores ----------------------------------------------------------------------------------------

cdef object SCORE = Score
cdef object STATUS = Score.status
cdef object REWARD = Score.reward
cdef object ACC = Score.acc
cdef object NCR = Score.ncr
cdef object NUM_NODES = Score.num_nodes
cdef object NUM_MATCHED = Score.num_matched
cdef object MATCHED = Score.matched
cdef object TPN = Score.tpn
cdef object ANSWER = Score.answer
cdef object ANSWER_METHOD = Score.answer_method
cdef object NCR_RAW = Score.ncr_raw
cdef object GUARD = Score.guard
cdef object CHANNEL_NUMBERS = Score.channel_numbers
cdef tuple OTHER_OF_SCORE = others(
    Score,
    (
        "status", "reward", "acc", "ncr", "num_nodes", "num_matched", "matched", "tpn", "answer",
        "answer_method", "ncr_raw", "guard", "channel_numbers",
    ),
)
cdef object OK = Status.OK
cdef dict NUMBER_OF = {one: pb.Status.Value(f"STATUS_{one.name}") for one in Status}
cdef dict STATUS_OF = {number: one for one, number in NUMBER_OF.items()}
cdef uint32_t OK_NUMBER = NUMBER_OF[Status.OK]
# A newer peer may know more channels, which count as patterns here.
cdef bytes KNOWN_CHANNELS = bytes(
    [number if number < len(CHANNELS) else CHANNELS.index("pattern") for number in range(256)]
)

cdef enum:
    COLUMNS = 32  # above the numbers of all columns

cdef dict _reply = numbers_of(pb.ScoreResponse)
cdef uint32_t IDENTITY_FIELD = _reply["identity"]
cdef uint32_t STATUSES_FIELD = _reply["statuses"]
cdef uint32_t REWARDS_FIELD = _reply["rewards"]
cdef uint32_t ACCS_FIELD = _reply["accs"]
cdef uint32_t NCRS_FIELD = _reply["ncrs"]
cdef uint32_t NCRS_RAW_FIELD = _reply["ncrs_raw"]
cdef uint32_t GUARDS_FIELD = _reply["guards"]
cdef uint32_t TPNS_FIELD = _reply["tpns"]
cdef uint32_t NUM_NODES_FIELD = _reply["num_nodes"]
cdef uint32_t NUM_MATCHED_FIELD = _reply["num_matched"]
cdef uint32_t CHANNELS_FIELD = _reply["channels"]
cdef uint32_t NUM_CHANNELS_FIELD = _reply["num_channels"]
cdef uint32_t ANSWERS_FIELD = _reply["answers"]
cdef uint32_t UNANSWERED_FIELD = _reply["unanswered"]
cdef uint32_t ANSWER_METHODS_FIELD = _reply["answer_methods"]
cdef uint64_t SINGLE = sum(
    1 << number for name, number in _reply.items()
    if name not in ("answers", "answer_methods", "messages", "spans")
)


cdef int put_doubles(Buffer out, uint32_t number, list column) except -1:
    cdef double value
    out.put_head(number, 8 * len(column))
    for one in column:
        value = one
        out.put(&value, 8)
    return 0


cdef int put_numbers(Buffer out, Buffer packed, uint32_t number) except -1:
    """Write a column whose entries stand in ``packed``, which is empty then."""
    if packed.size:
        out.put_head(number, packed.size)
        out.put(packed.data, packed.size)
        packed.size = 0
    return 0


cdef int put_texts(Buffer out, uint32_t number, list texts, clean) except -1:
    cdef Utf8 text
    for one in texts:
        if one is None:
            text = Utf8("", 0)
        elif not utf8_of(one, &text):
            one = clean(one)
            utf8_of(one, &text)
        put_text(out, number, &text)
    return 0


def encode_columns(columns, clean):
    """Return all of a reply but its identity, messages and spans.

    Args:
        columns: the scores.
        clean: returns a text as the protocol can carry it.
    """
    cdef Buffer out = Buffer(), packed = Buffer()
    cdef list statuses = columns.status, answers = columns.answer
    cdef list channels = columns.channel_numbers
    cdef Py_ssize_t at, size = 0
    if not statuses:
        return b""
    for status in statuses:
        packed.put_varint(OK_NUMBER if status is OK else <uint64_t>NUMBER_OF[status])
    put_numbers(out, packed, STATUSES_FIELD)
    put_doubles(out, REWARDS_FIELD, columns.reward)
    put_doubles(out, ACCS_FIELD, columns.acc)
    put_doubles(out, NCRS_FIELD, columns.ncr)
    if not same_numbers(columns.ncr_raw, columns.ncr):
        put_doubles(out, NCRS_RAW_FIELD, columns.ncr_raw)
    if not all_of(columns.guard, 1.0):
        put_doubles(out, GUARDS_FIELD, columns.guard)
    if not all_unknown(columns.tpn):
        put_doubles(out, TPNS_FIELD, columns.tpn)
    for number in columns.num_nodes:
        packed.put_varint(number)
    put_numbers(out, packed, NUM_NODES_FIELD)
    for number in columns.num_matched:
        packed.put_varint(number)
    put_numbers(out, packed, NUM_MATCHED_FIELD)
    for one in channels:
        packed.put_varint(len(<bytes?>one))
        size += len(<bytes>one)
    if size:
        out.put_head(CHANNELS_FIELD, size)
        for one in channels:
            out.put(PyBytes_AS_STRING(<bytes>one), len(<bytes>one))
    put_numbers(out, packed, NUM_CHANNELS_FIELD)
    put_texts(out, ANSWERS_FIELD, answers, clean)
    for at in range(len(answers)):
        if answers[at] is None:
            packed.put_varint(at)
    put_numbers(out, packed, UNANSWERED_FIELD)
    put_texts(out, ANSWER_METHODS_FIELD, columns.answer_method, clean)
    return out.taken()


cdef bint same_numbers(list some, list others) except -1:
    """Tell whether two columns say the same, what is unknown included."""
    cdef Py_ssize_t at
    cdef double one, other
    for at in range(len(some)):
        if some[at] is others[at]:
            continue
        one, other = some[at], others[at]
        if one != other and (one == one or other == other):
            return False
    return True


cdef bint all_of(list column, double wanted) except -1:
    cdef double value
    for one in column:
        value = one
        if value != wanted:
            return False
    return True


cdef bint all_unknown(list column) except -1:
    cdef double value
    for one in column:
        value = one
        if value == value:
            return False
    return True


cdef struct Column:
    const uint8_t* data
    Py_ssize_t size
    Py_ssize_t at  # up to which it is read


cdef object known_number(const Column* column, Py_ssize_t at):
    """Return an entry of a column of doubles, None where it is unknown."""
    cdef double value
    memcpy(&value, column.data + 8 * at, 8)
    return None if value != value else PyFloat_FromDouble(value)


cdef bint next_number(Column* column, uint32_t* number) noexcept nogil:
    return read_varint(column.data, &column.at, column.size, number)


def decode_scores(bytes reply not None):
    """Return the scores of a reply, the bytes of its identity, and its other fields as a reply.

    Returns:
        None where protobuf has to judge the bytes, or the codec what it makes of them.
    """
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(reply)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(reply)
    cdef Py_ssize_t at = 0, begin, kept = 0, count = 0, place, first = 0
    cdef Column columns[COLUMNS]
    cdef Column* column
    cdef Field field
    cdef uint32_t number
    cdef uint64_t seen = 0
    cdef Text answer = Text(), method = Text()
    cdef list answers = [], methods = [], rest = [], scores = []
    cdef bytes identity = b"", flags = b""
    cdef tuple matched = ()
    for place in range(COLUMNS):
        columns[place] = Column(NULL, 0, 0)
    try:
        while at < end:
            begin = at
            if not read_field(data, &at, end, &field):
                return None
            if field.number < COLUMNS and SINGLE >> field.number & 1:
                if field.wire != LENGTH or seen >> field.number & 1:
                    return None
                seen |= <uint64_t>1 << field.number
                columns[field.number] = Column(field.data, field.size, 0)
            elif field.number == ANSWERS_FIELD and field.wire == LENGTH:
                answers.append(answer.of(&field))
            elif field.number == ANSWER_METHODS_FIELD and field.wire == LENGTH:
                methods.append(method.of(&field))
            else:
                continue
            if kept < begin:
                rest.append(reply[kept:begin])
            kept = at
    except UnicodeDecodeError:
        return None
    if kept < end:
        rest.append(reply[kept:end])
    column = &columns[STATUSES_FIELD]
    for place in range(column.size):
        count += column.data[place] < 0x80
    if len(answers) != count or len(methods) != count:
        return None
    for number in (REWARDS_FIELD, ACCS_FIELD, NCRS_FIELD):
        if columns[number].size != 8 * count:
            return None
    for number in (NCRS_RAW_FIELD, GUARDS_FIELD, TPNS_FIELD):
        if columns[number].size and columns[number].size != 8 * count:
            return None
    column = &columns[UNANSWERED_FIELD]
    while column.at < column.size:
        if not next_number(column, &number) or number >= count:
            return None
        answers[number] = None
    for place in range(count):
        score = blank(SCORE)
        if not next_number(&columns[STATUSES_FIELD], &number):
            return None
        status = OK if number == OK_NUMBER else STATUS_OF.get(number)
        if status is None:
            return None
        fill_slot(STATUS, score, status)
        fill_slot(REWARD, score, known_number(&columns[REWARDS_FIELD], place))
        fill_slot(ACC, score, known_number(&columns[ACCS_FIELD], place))
        ncr = known_number(&columns[NCRS_FIELD], place)
        fill_slot(NCR, score, ncr)
        column = &columns[NCRS_RAW_FIELD]
        fill_slot(NCR_RAW, score, known_number(column, place) if column.size else ncr)
        column = &columns[GUARDS_FIELD]
        fill_slot(GUARD, score, known_number(column, place) if column.size else 1.0)
        column = &columns[TPNS_FIELD]
        fill_slot(TPN, score, known_number(column, place) if column.size else None)
        if not next_number(&columns[NUM_NODES_FIELD], &number):
            return None
        fill_slot(NUM_NODES, score, number)
        if not next_number(&columns[NUM_MATCHED_FIELD], &number):
            return None
        fill_slot(NUM_MATCHED, score, number)
        if not next_number(&columns[NUM_CHANNELS_FIELD], &number):
            return None
        column = &columns[CHANNELS_FIELD]
        if number > column.size - first:
            return None
        # A problem's rollouts reach its nodes in few combinations.
        if number != len(flags) or (
            number and memcmp(PyBytes_AS_STRING(flags), column.data + first, number)
        ):
            flags = reply[column.data - data + first:column.data - data + first + number]
            flags = flags.translate(KNOWN_CHANNELS)
            matched = tuple([channel != 0 for channel in flags])
        first += number
        fill_slot(CHANNEL_NUMBERS, score, flags)
        fill_slot(MATCHED, score, matched)
        fill_slot(ANSWER, score, answers[place])
        fill_slot(ANSWER_METHOD, score, methods[place])
        for slot, default in OTHER_OF_SCORE:
            fill_slot(slot, score, default)
        scores.append(score)
    for number in (STATUSES_FIELD, NUM_NODES_FIELD, NUM_MATCHED_FIELD, NUM_CHANNELS_FIELD):
        if columns[number].at != columns[number].size:
            return None
    if first != columns[CHANNELS_FIELD].size:
        return None
    column = &columns[IDENTITY_FIELD]
    if column.size:
        identity = PyBytes_FromStringAndSize(<const char*>column.data, column.size)
    return scores, identity, b"".join(rest)

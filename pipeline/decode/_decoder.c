/* Decodes the records of magic-2 batches into the buffers of Arrow columns, without a Python object per record.
 *
 *   Record  = length varint, then of that length: attributes int8, timestamp delta varint, offset delta varint,
 *             key, value: length varint (-1: null) and bytes,
 *             header count varint, then per header: name length, name, value length (-1: null), value
 *   varint  = zigzag, seven bits per byte, lowest first, at most ten bytes
 *
 * One pass. Every read is checked against the end of its record, every write against the size of its buffer, so that
 * no input can reach memory outside the buffers that the caller gave. The first malformed byte ends the pass; the
 * plain decoder then says what is wrong. `native.py` makes the buffers and reads them; `_decoder.pyi` names them.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* A row of the table that describes batches. */
typedef struct {
    int64_t start, end, base_offset, last_offset, base_timestamp, append_time, record_count;
} Batch;

/* How much of each column is filled: a call continues where the last one stopped. */
typedef struct {
    int64_t rows, key_bytes, value_bytes, headers, name_bytes, header_bytes, key_nulls, value_nulls, header_nulls;
} Used;

/* Offsets in [low, high) are wanted, and these of the columns with variable length. */
typedef struct {
    int64_t low, high, keys, values, headers;
} Wanted;

/* A column of binary values: ends[i + 1] is where value i ends in `bytes`; valid[i] is 0 for null. */
typedef struct {
    int32_t *ends;
    uint8_t *bytes, *valid;
    int64_t slots, size;
} Column;

typedef struct {
    int64_t *offsets, *times;
    int32_t *time_types, *header_ends;
    Column keys, values, names, items;
    Used *used;
    int64_t rows, header_rows;
} Columns;

/* Records have their own timestamps; any other value of append_time is the timestamp of all records. */
#define NO_APPEND_TIME INT64_MIN
#define MAX_MS (INT64_MAX / 1000)
#define MICROS_PER_MS 1000

/* Sums of int64 that wrap around, as malformed deltas may; in C a signed overflow is undefined. */
static int64_t add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* Read a varint at *position; return 0 if it crosses `end` or has more than ten bytes. */
static int read_varint(const uint8_t *data, int64_t *position, int64_t end, int64_t *value)
{
    uint64_t result = 0;
    int64_t at = *position;
    for (int shift = 0; at < end && shift <= 63; shift += 7) {
        uint8_t byte = data[at++];
        result |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)((result >> 1) ^ (0 - (result & 1)));
            *position = at;
            return 1;
        }
    }
    return 0;
}

/* Read a length and its bytes into slot `slot` of `column`, whose bytes continue at *filled; count a null. */
static int read_bytes(const uint8_t *data, int64_t *position, int64_t end, Column *column, int64_t slot,
                      int64_t *filled, int64_t *nulls, int wanted)
{
    int64_t size;
    if (!read_varint(data, position, end, &size) || size < -1 || size > end - *position)
        return 0;
    if (wanted) {
        if (slot >= column->slots || size > column->size - *filled)
            return 0;
        column->valid[slot] = size >= 0;
        if (size > 0) {
            memcpy(column->bytes + *filled, data + *position, (size_t)size);
            *filled += size;
        }
        column->ends[slot + 1] = (int32_t)*filled;
        *nulls += size < 0;
    }
    if (size > 0)
        *position += size;
    return 1;
}

static int read_headers(const uint8_t *data, int64_t *position, int64_t end, Columns *out, int wanted)
{
    Used *used = out->used;
    int64_t count, name_nulls = 0;
    if (!read_varint(data, position, end, &count) || count < 0 || count > end - *position)
        return 0;
    for (; count > 0; count--) {
        int64_t slot = used->headers, name = *position, size;
        /* The name of a header must not be null. */
        if (!read_varint(data, &name, end, &size) || size < 0)
            return 0;
        if (!read_bytes(data, position, end, &out->names, slot, &used->name_bytes, &name_nulls, wanted)
            || !read_bytes(data, position, end, &out->items, slot, &used->header_bytes, &used->header_nulls, wanted))
            return 0;
        used->headers += wanted;
    }
    return 1;
}

/* Read one record after its length; `*previous` is the offset of the record before. */
static int read_record(const uint8_t *data, int64_t position, int64_t end, const Batch *batch, const Wanted *wanted,
                       Columns *out, int64_t *previous)
{
    Used *used = out->used;
    int64_t attributes, time_delta, offset_delta, row = used->rows;
    /* The attributes are one unused byte; as a varint it reads the same. */
    if (!read_varint(data, &position, end, &attributes) || !read_varint(data, &position, end, &time_delta)
        || !read_varint(data, &position, end, &offset_delta))
        return 0;
    int64_t offset = add(batch->base_offset, offset_delta);
    if (offset <= *previous || offset > batch->last_offset)
        return 0;
    *previous = offset;
    if (offset < wanted->low || offset >= wanted->high)
        return 1;
    if (row >= out->rows || (wanted->headers && row >= out->header_rows))
        return 0;
    int own_time = batch->append_time == NO_APPEND_TIME;
    int64_t time = own_time ? add(batch->base_timestamp, time_delta) : batch->append_time;
    time = time > MAX_MS ? MAX_MS : time < -MAX_MS ? -MAX_MS : time;
    out->offsets[row] = offset;
    out->times[row] = time * MICROS_PER_MS;
    out->time_types[row] = !own_time;
    if (!read_bytes(data, &position, end, &out->keys, row, &used->key_bytes, &used->key_nulls, wanted->keys != 0)
        || !read_bytes(data, &position, end, &out->values, row, &used->value_bytes, &used->value_nulls,
                       wanted->values != 0)
        || !read_headers(data, &position, end, out, wanted->headers != 0) || position != end)
        return 0;
    used->rows = row + 1;
    if (wanted->headers)
        out->header_ends[row + 1] = (int32_t)used->headers;
    return 1;
}

static int read_batch(const uint8_t *data, int64_t size, const Batch *batch, const Wanted *wanted, Columns *out)
{
    int64_t position = batch->start, previous = add(batch->base_offset, -1), length;
    if (batch->start < 0 || batch->end < batch->start || batch->end > size)
        return 0;
    for (int64_t left = batch->record_count; left > 0; left--) {
        if (!read_varint(data, &position, batch->end, &length) || length < 0 || length > batch->end - position
            || !read_record(data, position, position + length, batch, wanted, out, &previous))
            return 0;
        position += length;
    }
    return position == batch->end;
}

enum {
    DATA, BATCHES, WANTED, OFFSETS, TIMES, TIME_TYPES, KEY_ENDS, KEYS, KEY_VALID, VALUE_ENDS, VALUES, VALUE_VALID,
    HEADER_ENDS, NAME_ENDS, NAMES, NAME_VALID, ITEM_ENDS, ITEMS, ITEM_VALID, USED, BUFFERS
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static Column column_of(const Py_buffer *ends, const Py_buffer *bytes, const Py_buffer *valid)
{
    int64_t slots = least(ends->len / (int64_t)sizeof(int32_t) - 1, valid->len);
    return (Column){ends->buf, bytes->buf, valid->buf, slots, least(bytes->len, INT32_MAX)};
}

static int decode_all(const Py_buffer *b)
{
    Columns out = {
        .offsets = b[OFFSETS].buf, .times = b[TIMES].buf, .time_types = b[TIME_TYPES].buf,
        .header_ends = b[HEADER_ENDS].buf, .used = b[USED].buf,
        .keys = column_of(&b[KEY_ENDS], &b[KEYS], &b[KEY_VALID]),
        .values = column_of(&b[VALUE_ENDS], &b[VALUES], &b[VALUE_VALID]),
        .names = column_of(&b[NAME_ENDS], &b[NAMES], &b[NAME_VALID]),
        .items = column_of(&b[ITEM_ENDS], &b[ITEMS], &b[ITEM_VALID]),
        .header_rows = b[HEADER_ENDS].len / (int64_t)sizeof(int32_t) - 1,
    };
    out.rows = least(b[OFFSETS].len / 8, least(b[TIMES].len / 8, b[TIME_TYPES].len / 4));
    const Batch *batches = b[BATCHES].buf;
    int64_t count = b[BATCHES].len / (int64_t)sizeof(Batch);
    for (int64_t number = 0; number < count; number++)
        if (!read_batch(b[DATA].buf, b[DATA].len, &batches[number], b[WANTED].buf, &out))
            return 0;
    return 1;
}

static PyObject *decode(PyObject *module, PyObject *arguments)
{
    Py_buffer buffers[BUFFERS];
    int taken = 0, whole = -1;
    if (PyTuple_Size(arguments) != BUFFERS) {
        PyErr_Format(PyExc_TypeError, "decode() takes %d buffers", BUFFERS);
        return NULL;
    }
    for (; taken < BUFFERS; taken++) {
        int flags = taken < OFFSETS ? PyBUF_SIMPLE : PyBUF_WRITABLE;
        if (PyObject_GetBuffer(PyTuple_GetItem(arguments, taken), &buffers[taken], flags) < 0)
            break;
    }
    if (taken == BUFFERS) {
        if (buffers[USED].len != sizeof(Used) || buffers[WANTED].len != sizeof(Wanted)) {
            PyErr_SetString(PyExc_ValueError, "decode(): `wanted` holds 5 and `used` 9 int64");
        } else {
            Py_BEGIN_ALLOW_THREADS
            whole = decode_all(buffers);
            Py_END_ALLOW_THREADS
        }
    }
    while (taken > 0)
        PyBuffer_Release(&buffers[--taken]);
    return whole < 0 ? NULL : PyBool_FromLong(whole);
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS, "Decode batches into columns; False for what is malformed."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_decoder", "The compiled decoder of record batches.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__decoder(void) { return PyModule_Create(&definition); }

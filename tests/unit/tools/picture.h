/*
 * What a person would see: the picture of an xterm, made from the bytes that a program has written
 * to it. Of its commands only those that terminfo's xterm tells curses to use; any other is a
 * failure of the test.
 */
#ifndef NCCLGUARD_TESTS_UNIT_TOOLS_PICTURE_H
#define NCCLGUARD_TESTS_UNIT_TOOLS_PICTURE_H

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

class Picture
{
  public:
    Picture(unsigned rows, unsigned columns)
    {
        resize(rows, columns);
    }
    void resize(unsigned rows, unsigned columns)
    {
        cells_.assign(rows, std::vector<Cell>(columns));
        first_ = 0;
        last_row_ = rows - 1;
        row_ = column_ = 0;
    }
    void feed(const std::string &bytes)
    {
        waiting_ += bytes;
        size_t used = 0;
        while (used < waiting_.size()) {
            size_t taken = take(used);
            if (!taken)
                break;
            used += taken;
        }
        waiting_.erase(0, used);
    }
    /* Without the blanks at the ends of lines. */
    std::string line(unsigned row) const
    {
        std::string text;
        for (const Cell &cell : cells_.at(row))
            text += cell.text;
        text.erase(text.find_last_not_of(' ') + 1);
        return text;
    }
    std::string text() const
    {
        std::string all;
        for (unsigned i = 0; i < cells_.size(); i++)
            all += line(i) + "\n";
        return all;
    }
    /* The number of the first line that has this; -1 none. */
    int find(const std::string &wanted) const
    {
        for (unsigned i = 0; i < cells_.size(); i++)
            if (line(i).find(wanted) != std::string::npos)
                return static_cast<int>(i);
        return -1;
    }
    bool has(const std::string &wanted) const
    {
        return find(wanted) >= 0;
    }
    /* The first cell of this line: how it is drawn, as parameters of SGR. */
    const std::string &style(unsigned row) const
    {
        return cells_.at(row)[0].style;
    }
    bool coloured() const
    {
        for (const auto &row : cells_)
            for (const Cell &cell : row)
                for (const char *colour : {"31", "32", "33"})
                    if (cell.style.find(colour) != std::string::npos)
                        return true;
        return false;
    }

  private:
    struct Cell {
        std::string text = " ", style;
    };

    void put(const std::string &character)
    {
        if (column_ >= cells_[0].size()) {
            column_ = 0;
            row_ = std::min<unsigned>(row_ + 1, static_cast<unsigned>(cells_.size()) - 1);
        }
        last_ = character;
        cells_[row_][column_++] = {character, style_};
    }
    void move(long row, long column)
    {
        row_ =
            static_cast<unsigned>(std::clamp<long>(row, 0, static_cast<long>(cells_.size()) - 1));
        column_ = static_cast<unsigned>(
            std::clamp<long>(column, 0, static_cast<long>(cells_[0].size()) - 1));
    }
    void clear(unsigned row, unsigned from, unsigned to)
    {
        for (unsigned i = from; i < to && i < cells_[row].size(); i++)
            cells_[row][i] = {" ", style_};
    }
    /* The lines of the region, up or down. */
    void scroll(long by)
    {
        for (; by > 0; by--) {
            cells_.erase(cells_.begin() + first_);
            cells_.insert(cells_.begin() + last_row_, std::vector<Cell>(cells_[0].size()));
        }
        for (; by < 0; by++) {
            cells_.erase(cells_.begin() + last_row_);
            cells_.insert(cells_.begin() + first_, std::vector<Cell>(cells_[0].size()));
        }
    }
    /* How many bytes were used; 0: more must come. */
    size_t take(size_t at)
    {
        unsigned char byte = static_cast<unsigned char>(waiting_[at]);
        if (byte == 27)
            return take_escape(at);
        if (byte >= ' ') {
            size_t length = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
            if (at + length > waiting_.size())
                return 0;
            put(waiting_.substr(at, length));
            return length;
        }
        if (byte == '\r')
            column_ = 0;
        else if (byte == '\n' && row_ == last_row_)
            scroll(1);
        else if (byte == '\n')
            move(static_cast<long>(row_) + 1, column_);
        else if (byte == '\b')
            move(row_, static_cast<long>(column_) - 1);
        else if (byte == '\t')
            move(row_, (static_cast<long>(column_) / 8 + 1) * 8);
        return 1;
    }
    size_t take_escape(size_t at)
    {
        if (at + 1 >= waiting_.size())
            return 0;
        char kind = waiting_[at + 1];
        if (kind == '(' || kind == ')')
            return at + 2 < waiting_.size() ? 3 : 0;
        if (kind == 'M' && row_ == first_)
            scroll(-1);
        else if (kind == 'M')
            move(static_cast<long>(row_) - 1, column_);
        if (kind != '[')
            return 2; /* modes of the keypad, and the like */
        size_t end = at + 2;
        while (end < waiting_.size() && (waiting_[end] < '@' || waiting_[end] > '~'))
            end++;
        if (end >= waiting_.size())
            return 0;
        command(waiting_[end], waiting_.substr(at + 2, end - at - 2));
        return end + 1 - at;
    }
    void command(char kind, const std::string &parameters)
    {
        if (kind == 'h' || kind == 'l' || kind == 't')
            return;
        long first = parameters.empty() ? 0 : std::atol(parameters.c_str());
        size_t semicolon = parameters.find(';');
        long second = semicolon == std::string::npos ? 0 : std::atol(&parameters[semicolon + 1]);
        long times = std::max(first, 1L);
        unsigned width = static_cast<unsigned>(cells_[0].size());
        auto &row = cells_[row_];
        switch (kind) {
        case 'm':
            /* The last that was set is enough to tell lines apart. */
            style_ = first || semicolon != std::string::npos ? parameters : "";
            break;
        case 'r':
            first_ = static_cast<unsigned>(times) - 1;
            last_row_ =
                static_cast<unsigned>(second ? second : static_cast<long>(cells_.size())) - 1;
            move(0, 0);
            break;
        case 'S':
        case 'T':
            scroll(kind == 'S' ? times : -times);
            break;
        case 'H':
            move(times - 1, std::max(second, 1L) - 1);
            break;
        case 'G':
            move(row_, times - 1);
            break;
        case 'd':
            move(times - 1, column_);
            break;
        case 'A':
        case 'B':
            move(static_cast<long>(row_) + (kind == 'A' ? -times : times), column_);
            break;
        case 'C':
        case 'D':
            move(row_, static_cast<long>(column_) + (kind == 'D' ? -times : times));
            break;
        case 'K':
            clear(row_, first ? 0 : column_, first == 1 ? column_ + 1 : width);
            break;
        case 'J':
            for (unsigned i = first ? 0 : row_ + 1; i < cells_.size(); i++)
                clear(i, 0, width);
            if (!first)
                clear(row_, column_, width);
            break;
        case 'X':
            clear(row_, column_, column_ + static_cast<unsigned>(times));
            break;
        case 'b':
            for (long i = 0; i < times; i++)
                put(last_);
            break;
        case 'P':
            for (long i = 0; i < times && column_ < row.size(); i++) {
                row.erase(row.begin() + column_);
                row.push_back({});
            }
            break;
        case '@':
            for (long i = 0; i < times; i++) {
                row.insert(row.begin() + column_, Cell());
                row.pop_back();
            }
            break;
        default:
            ADD_FAILURE() << "unknown to this terminal: ESC [ " << parameters << kind;
        }
    }

    std::vector<std::vector<Cell>> cells_;
    std::string waiting_, style_, last_ = " ";
    unsigned row_ = 0, column_ = 0, first_ = 0, last_row_ = 0;
};

#endif
